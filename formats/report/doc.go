// Package report turns the outcomes of requests into a formats.Report.
//
// An Accumulator takes one run's outcomes: Arrive, Batch, and then Complete or Drop for each request. After a
// start-up phase these calls allocate nothing. Build makes the report of one run, Merge that of several
// replications.
//
// Attainment and its interval are computed here for all reports, those of the accumulator and of measured runs
// (attainment.go). statistics.go has the percentiles and intervals.
//
// Conventions, the same for simulated and measured runs:
//   - A request is counted by its arrival time. Those that arrive before the end of the warm-up, or after
//     Duration, run but are not counted.
//   - Late means answered after the deadline. Late requests are counted as completed, and not in the
//     goodput. Attainment = (completed - late) / requests, and 1 without requests.
//   - Rates are over the counted time, from the end of the warm-up to Duration.
//   - Percentiles are those of completed requests and follow the nearest-rank rule: the smallest sample
//     that at least the share p of all samples do not exceed. They are exact, never interpolated.
//   - A request that was neither answered nor dropped when Build is called is reported as dropped with
//     the reason "unfinished", and a warning says so.
//   - The 95 % interval of attainment is Student's t over replications. For one run, or if all
//     replications agree, it is Wilson's interval, which treats requests as independent and is
//     therefore too narrow under bursts.
package report
