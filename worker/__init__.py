"""The worker: generates rollouts under seeded sampling, proves them, and keeps them until their round ends."""
