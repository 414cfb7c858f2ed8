"""A gated MLP whose gate/up product carries the activation: autograd, launches, kernels, configurations."""
