"""The process that runs targets and hands back raw results; it judges nothing."""
