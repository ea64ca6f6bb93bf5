package trials

// Problems of tests, for those that search for a whole plan.
var (
	SamplesForwarding = samplesForwarding
	TwoModels         = twoModels
)
