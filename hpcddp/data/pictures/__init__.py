"""JPEG pictures: in folders or tar files, cut and decoded, damaged ones replaced.

Standard library and torch (torchvision, Pillow or simplejpeg where pictures are decoded), Python 3.10.
"""
