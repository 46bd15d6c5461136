"""S3 servers to test against: moto's and s3rver, two unrelated implementations, each as a process of its own."""
