package main

// reference holds the results of an independent implementation of the same reading with
// seed 1, in percent of the requests: unavoidable, and dropped or late.
type reference struct{ bound, naive, nexus, clipper, pard, feas float64 }

var references = map[string]reference{
	"S0/tm-wiki":  {0.10, 3.81, 2.84, 0.79, 0.48, 0.31},
	"S0/tm-tweet": {1.56, 16.64, 5.04, 1.70, 1.78, 1.65},
	"S0/tm-azure": {0.64, 11.32, 7.43, 3.73, 1.04, 0.96},
	"S0/lv-wiki":  {0.08, 3.53, 2.70, 0.48, 0.55, 0.32},
	"S0/lv-tweet": {1.57, 16.96, 5.25, 2.35, 1.90, 1.72},
	"S0/lv-azure": {0.44, 10.36, 6.85, 1.08, 0.91, 0.82},
	"S0/ga-wiki":  {0.04, 1.99, 1.62, 0.25, 0.36, 0.23},
	"S0/ga-tweet": {1.54, 16.47, 4.97, 1.68, 1.73, 1.65},
	"S0/ga-azure": {0.44, 8.95, 5.98, 0.81, 0.89, 0.81},
	"S0/da-wiki":  {0.11, 3.86, 2.23, 1.29, 0.55, 0.35},
	"S0/da-tweet": {1.60, 18.25, 5.36, 3.40, 1.97, 1.77},
	"S0/da-azure": {0.58, 11.78, 6.74, 1.93, 0.99, 0.93},
	"S1/lv-tweet": {2.33, 28.45, 5.32, 4.68, 2.71, 2.49},
	"S1/lv-azure": {0.69, 14.12, 7.10, 3.34, 1.18, 1.10},
	"S1/da-tweet": {2.08, 23.13, 5.42, 5.56, 2.66, 2.47},
	"S1/da-azure": {0.67, 13.98, 6.97, 3.84, 1.24, 1.15},
	"S1/lv-wiki":  {0.12, 3.92, 2.77, 0.74, 0.63, 0.38},
}

// referenced are the policies that it has.
var referenced = []string{"naive", "nexus", "clipper++", "pard", "feas-hbf"}

// of returns the drop rate of a policy. If it was not measured, it returns 0.
func (r reference) of(policy string) float64 {
	return map[string]float64{"naive": r.naive, "nexus": r.nexus, "clipper++": r.clipper, "pard": r.pard, "feas-hbf": r.feas}[policy]
}
