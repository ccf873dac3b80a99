"""Videos of episodes: from recorded states to pictures and the bytes of a video file."""
