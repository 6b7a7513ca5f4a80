"""Building blocks of learners: slices, decorrelation, teachers and queues, clusters of the training set."""
