"""Pictures of episodes: recorded states in, frames (uint8 arrays) and the bytes of a video file
out."""
