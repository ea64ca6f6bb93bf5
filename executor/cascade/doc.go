// Package cascade answers the requests of gear plans: a model of a family answers, and the next one is asked if the answer
// is not certain.
//
// Vocabulary: the gear in force is the cascade that requests now arrive under. A level is the number of a range of
// certainties, which the policy compares with thresholds. A record is a row of the plan's table of certainties, which
// replaces models for the engine "replay".
//
// Order of reading:
//
//	gears.go        certainties, the gear of each request, which model answered
//	options.go      how answers are judged, and when another plan is due
//	gearmetrics.go  series
//	gearpart.go     what the page of the server shows
package cascade
