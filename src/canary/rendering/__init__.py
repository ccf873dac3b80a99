"""Videos of episodes: recorded states in, pictures and the bytes of a video file out."""
