"""qwen"""
