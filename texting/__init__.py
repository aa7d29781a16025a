"""The service, package by package; docs/contributing.md says what each one keeps."""
