"""The APIs asked for everything that their OpenAPI documents allow, and for much that they do not."""
