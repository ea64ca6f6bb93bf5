// Package cascade answers the requests of gear plans: models of a family, of which one
// answers and the next is asked where the answer is not certain.
//
//	gears.go        how certain answers are, by which gear requests come, who answered
//	options.go      how answers are judged, and when another plan is due
//	gearmetrics.go  series
package cascade
