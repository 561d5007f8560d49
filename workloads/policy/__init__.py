"""The recurrent policy of `rolloutcopy`, `trainforward` and `trainstep`, trained with PPO."""
