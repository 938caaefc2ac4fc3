"""Programs from JSON documents, checked as strictly as a text is; what is wrong is named by its path in the document."""
