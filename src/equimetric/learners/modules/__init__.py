"""What several learners are made of: slices, decorrelation, teachers and queues, clusters of the training set."""
