"""What each verb does, from records to records; no package in the root bears the name of a public function."""
