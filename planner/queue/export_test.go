package queue

// Checked is what every solve of queues passes.
var Checked = withRuleCheck
