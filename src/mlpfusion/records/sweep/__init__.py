"""Records of a study."""
