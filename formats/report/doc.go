// Package report turns what happened to requests into a formats.Report.
//
// An Accumulator takes one run's outcomes: Arrive, Batch, and then Complete or
// Drop for each request. These calls allocate nothing in steady state. Build
// makes the report of one run, Merge that of several replications.
//
// What was attained, and its interval, is computed here for all reports:
// Attainment, for the accumulator and for measured runs (attainment.go).
//
// Conventions, the same for simulated and measured runs:
//   - A request counts by its arrival: those that arrive before the warm-up
//     ends, or after Duration, run but are not counted.
//   - Late means answered after the deadline; late ones are inside completed,
//     outside goodput. Attainment = (completed - late) / requests, and 1 where
//     there was no request.
//   - Rates are over the counted time, from the end of the warm-up to Duration.
//   - Percentiles are of completed requests and follow the nearest-rank rule:
//     the smallest sample that at least the share p of all samples do not
//     exceed. They are exact, never interpolated.
//   - A request that is neither answered nor dropped when Build is called is
//     reported as dropped with reason "unfinished", and a warning says so.
//   - The 95 % interval of attainment is Student's t over replications; for one
//     run, or where all replications agree, it is Wilson's interval, which
//     treats requests as independent and is therefore too narrow under bursts.
package report
