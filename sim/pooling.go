package sim

import (
	"reflect"
	"time"

	"inferplan/formats/report"
)

// poolResults adds up the results of runs into one: its counts, its report with intervals over the runs, and the
// figures of the kinds of plans that have some.
func poolResults(results []*Result) *Result {
	pooled := &Result{}
	for run, result := range results {
		addFigures(reflect.ValueOf(pooled).Elem(), reflect.ValueOf(result).Elem(), run == 0)
		pooled.transferTimes.merge(&result.transferTimes)
	}
	pooled.Report = report.Merge(accumulators(results))
	pooled.Transfers = pooled.transferTimes.summary()
	pooled.reportFigures()
	return pooled
}

// accumulators returns the accumulators of runs (what their reports are made of), in order, so that they can be
// merged into one report.
func accumulators(results []*Result) []*report.Accumulator {
	list := make([]*report.Accumulator, len(results))
	for run, result := range results {
		list[run] = result.reportCounts
	}
	return list
}

// addFigures adds the figures of a run to their sum over the runs before it. Numbers are added up, lists of times are
// joined, so that percentiles are over all runs, and other lists are added up entry by entry. A name stays if a run has
// none. Fields of structures that are not exported are left out, and the tag `runs` of a field says what else becomes of it:
//
//	none     nothing, the sum is made in another way
//	first    it is that of the first run: all runs have the same, or it has no sum
//	latest   it is that of the latest run
//	max      it is the largest of all runs
//	known    it is the sum, or -1 if it is below 0, which means unknown, in any run
//
// It panics at a field of another kind, such as a map, which needs a tag.
func addFigures(sum, run reflect.Value, isFirst bool) {
	switch sum.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		sum.SetInt(sum.Int() + run.Int())
	case reflect.Float64:
		sum.SetFloat(sum.Float() + run.Float())
	case reflect.String:
		if run.Len() > 0 {
			sum.Set(run)
		}
	case reflect.Pointer:
		if run.IsNil() {
			return
		}
		if sum.IsNil() {
			sum.Set(reflect.New(sum.Type().Elem()))
		}
		addFigures(sum.Elem(), run.Elem(), isFirst)
	case reflect.Slice:
		if sum.Type() == reflect.TypeFor[[]time.Duration]() {
			sum.Set(reflect.AppendSlice(sum, run))
			return
		}
		if missing := run.Len() - sum.Len(); missing > 0 {
			sum.Grow(missing)
			sum.SetLen(run.Len())
		}
		for i := range run.Len() {
			addFigures(sum.Index(i), run.Index(i), isFirst)
		}
	case reflect.Struct:
		for i := range sum.NumField() {
			if field := sum.Type().Field(i); field.IsExported() {
				addField(sum.Field(i), run.Field(i), field.Tag.Get("runs"), isFirst)
			}
		}
	default:
		panic("sim: no sum of " + sum.Type().String())
	}
}

// addField adds a field of a run to its sum over the runs before it, as addFigures says for the tag.
func addField(sum, run reflect.Value, tag string, isFirst bool) {
	switch tag {
	case "none":
	case "latest":
		sum.Set(run)
	case "first":
		if isFirst {
			sum.Set(run)
		}
	case "max":
		sum.SetInt(max(sum.Int(), run.Int()))
	case "known":
		if sum.Int() < 0 || run.Int() < 0 {
			sum.SetInt(-1)
			return
		}
		fallthrough
	default:
		addFigures(sum, run, isFirst)
	}
}

// reportFigures puts the figures that the result holds beside its report into that.
func (r *Result) reportFigures() {
	r.reportDispatches()
	r.reportGears()
	r.reportFlow()
	r.reportWork()
	r.reportSessions()
	r.reportGenerated()
	r.reportTokens()
}
