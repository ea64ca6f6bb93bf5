package drift

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/formats"
)

// ForwardDrift watches how often the members of a cascade forward samples. Inputs that are harder than the recorded
// ones are forwarded to larger members more often, so the plan's devices sustain less than its rates. The request
// rates do not show that.
//
// It compares the shares of samples that each member answers with those that it would answer under the gears in
// force. Windows without answers do not count.
type ForwardDrift struct {
	deviation        shareDrift
	names            []string         // of the family, each once
	memberByPipeline []int            // index of the member, by pipeline
	plannedByGear    [][]memberShares // by gear
	plan             *formats.Plan
	countedAnswers   [][]int64             // by gear and pipeline: answers at the last window
	expectedAnswers  []float64             // by member: answers that were planned, faded
	arrivals         [2][]float64          // samples that came to the member: planned and observed, by member, faded
	forwarded        [2][]float64          // samples forwarded: planned and observed, by member, faded
	metrics          [2][]prometheus.Gauge // gauges of the shares forwarded: planned and observed, by member
}

// memberShares are the planned shares of a member in a gear: of the samples, those that come to it and those that it
// answers.
type memberShares struct {
	member              int
	arriving, answering float64
}

// NewForwardDrift returns the watch that compares which members of a cascade (its models, smallest first) answer with
// what a gear plan expects. A gear is a cascade for a range of rates; its stages are the members that a sample goes
// through until one is certain enough. family has the model of each pipeline (a model on one kind of devices). It
// registers its series in reg.
func NewForwardDrift(plan *formats.Plan, family []string, l Limit, reg prometheus.Registerer) *ForwardDrift {
	f := &ForwardDrift{plan: plan}

	// The members are the different models of the family. Pipelines of one model are one member.
	for _, name := range family {
		index := slices.Index(f.names, name)
		if index < 0 {
			index, f.names = len(f.names), append(f.names, name)
		}
		f.memberByPipeline = append(f.memberByPipeline, index)
	}

	// Plan, for each gear, the share of its samples that arrives at each member, and the share that the member answers:
	// those that do not arrive at the next one.
	gears := formats.GearOf(plan).Gears
	for i := range gears {
		var list []memberShares
		for k, s := range gears[i].Stages {
			forwardedShare := 0.0
			if k+1 < len(gears[i].Stages) {
				forwardedShare = gears[i].Stages[k+1].Fraction
			}
			list = append(list, memberShares{slices.Index(f.names, s.Model), s.Fraction, s.Fraction - forwardedShare})
		}
		f.plannedByGear, f.countedAnswers = append(f.plannedByGear, list), append(f.countedAnswers, make([]int64, len(family)))
	}
	// Make the sums, in which k is 0 for what was planned and 1 for what was seen.
	n := len(f.names)
	for k := range f.arrivals {
		f.arrivals[k], f.forwarded[k] = make([]float64, n), make([]float64, n)
	}
	f.expectedAnswers = make([]float64, n)

	// Register a series for each.
	shares := [2]*prometheus.GaugeVec{
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "forward_planned_share", Help: "Share of the samples at a member that the gears in force would have it forward."}, []string{"model"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "forward_share", Help: "Share of the recent samples at a member that it forwarded."}, []string{"model"}),
	}
	for k, vec := range shares {
		for _, name := range f.names {
			f.metrics[k] = append(f.metrics[k], vec.WithLabelValues(name))
		}
	}
	reg.MustRegister(shares[0], shares[1])
	f.deviation = newShareDrift(forwardKind, make([]float64, n), l, reg)
	return f
}

// Window is called at the end of each window of time (about a second). answers has the numbers of answers since the
// start, by the gear in force when the sample came and by the pipeline that answered. It adds the window to sums in
// which older windows fade, sets the series, and raises the alarm if the members' shares of the answers are too far from
// the plan's.
func (f *ForwardDrift) Window(answers [][]int64, log *slog.Logger) {
	n := len(f.names)
	answered, planned := make([]float64, n), make([]float64, n)
	var arrivals, forwarded [2][]float64
	for k := range arrivals {
		arrivals[k], forwarded[k] = make([]float64, n), make([]float64, n)
	}

	// Count the answers of this window, and what was planned for so many samples.
	for g, list := range f.plannedByGear {
		answersOf, total := make([]float64, n), 0.0
		for p, count := range answers[g] {
			answersOf[f.memberByPipeline[p]] += float64(count - f.countedAnswers[g][p])
			total += float64(count - f.countedAnswers[g][p])
			f.countedAnswers[g][p] = count
		}
		// Follow the samples through the stages. In index 0 are the planned numbers of arrivals and forwards, in index 1
		// the real ones.
		remaining := total
		for _, s := range list {
			planned[s.member] += total * s.answering
			answered[s.member] += answersOf[s.member]
			arrivals[0][s.member] += total * s.arriving
			forwarded[0][s.member] += total * (s.arriving - s.answering)
			arrivals[1][s.member] += remaining
			remaining -= answersOf[s.member]
			forwarded[1][s.member] += remaining
		}
	}
	if sum(answered) == 0 {
		return
	}

	// Add the window to the faded sums.
	f.deviation.addFaded(f.expectedAnswers, planned)
	for k := range arrivals {
		f.deviation.addFaded(f.arrivals[k], arrivals[k])
		f.deviation.addFaded(f.forwarded[k], forwarded[k])
	}
	f.deviation.plannedShares = sharesOf(f.expectedAnswers)
	for k, gauges := range f.metrics {
		for m, gauge := range gauges {
			gauge.Set(fraction(f.forwarded[k][m], f.arrivals[k][m]))
		}
	}
	f.deviation.addWindow(answered, f.notice, log)
}

// fraction returns part/total, or 0 if total is 0.
func fraction(part, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return max(0, part/total)
}

// Report adds a warning to the report of a server that has ended, if another plan is due.
func (f *ForwardDrift) Report(out *formats.Report) {
	if f.deviation.alarm.raised {
		out.Warnings = append(out.Warnings, f.notice())
	}
}

// notice returns the text of the alarm that a cascade's models do not forward samples to each other as the plan
// expected: the share of samples that each model answered recently, beside the planned one, and the command that makes a
// new plan.
func (f *ForwardDrift) notice() string {
	answeredShares := sharesOf(f.deviation.recent)
	var list []string
	for m, name := range f.names {
		list = append(list, fmt.Sprintf("%s %s (planned %s)", name, strconv.FormatFloat(answeredShares[m], 'f', 3, 64), strconv.FormatFloat(f.deviation.plannedShares[m], 'f', 3, 64)))
	}
	files, _ := InputFlags(f.plan.Inputs)
	return fmt.Sprintf("samples are not forwarded as planned (%.2f of them answered by other members, limit %.2f): %s; the plan's rates and accuracy are of samples like the recorded ones: record today's with `plan profile --records`, "+
		"type `plan solve --method gear%s%s -o plan.json` in the plan's folder, and send SIGHUP", f.deviation.totalVariation(), f.deviation.limit.Distance, strings.Join(list, ", "), files, optionFlags(f.plan))
}
