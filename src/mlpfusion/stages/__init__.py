"""The stages of the verbs, from records to records; no package in the root has the name of a public function."""
