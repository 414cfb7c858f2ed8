"""Mangled C++ names and how a demangler spells them; None for what is no such name."""

from __future__ import annotations

MANGLED = {
    "_ZN7cutlass7Kernel2I66cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x6_tn_align8EEvNT_6ParamsE": (
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x6_tn_align8>"
        "(cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x6_tn_align8::Params)"
    ),
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_": (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
        "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
    ),
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib": (
        "void aiter::add_rmsnorm_quant_kernel<std::bfloat16_t, std::bfloat16_t, 256, 16, true, false, true, 1>"
        "(std::bfloat16_t*, std::bfloat16_t*, float*, std::bfloat16_t*, std::bfloat16_t*, std::bfloat16_t*, double, "
        "int, int, int, int, int, int, int, bool)"
    ),
    "_Z14softmax_kernelPKfPfi": "softmax_kernel(float const*, float*, int)",
    "_ZN2ck6deviceL3runILin1EEEvv": "void ck::device::run<-1>()",
    "_ZN12_GLOBAL__N_13fooEv.kd": "(anonymous namespace)::foo()",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2": "ck_tile::kentry<1, …",
    "_Z": None,
    "_Znonsense": None,
    "aten::mm": None,
}
