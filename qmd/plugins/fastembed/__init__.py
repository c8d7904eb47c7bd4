"""fastembed"""
