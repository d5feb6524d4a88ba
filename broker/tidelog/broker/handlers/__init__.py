"""One file per API: from a decoded request to a response frame."""
