package text

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/drift"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// planMonitor compares what is served with what was planned: the length of answers, the time of work, and the number
// of instances. The policy adapts to the first two by itself; beyond a limit another plan is due.
type planMonitor struct {
	c      *turn.Core
	Policy learningPolicy // nil if the policy learns nothing

	factors, outputs             *prometheus.GaugeVec
	alarm                        *drift.Alarm // for the lengths and the times together
	lateGauge, adviceGauge       prometheus.Gauge
	lateSince                    time.Duration // since when requests are expected late without a break; 0 if none are
	lateSum, waitingSum, samples int           // sums over the samples since lateSince
	adviceLogged                 bool

	mu       sync.Mutex                // held by rounds that write and servers that read
	lengths  []answerLengths           // of recent answers, at most maxLengths
	nextSlot int                       // where the next lengths go once there are maxLengths
	observed []vqueue.ModelObservation // what the policy had learnt in the last second
}

// learningPolicy is a policy that reports what it has learnt.
type learningPolicy interface {
	Observations() []vqueue.ModelObservation
	ExpectedLateness() (late, waiting int, last time.Duration)
}

// answerLengths are the tokens of the prompt and the answer of a request.
type answerLengths struct{ model, prompt, output int32 }

// MinAnswers and minWorkSeconds are the numbers of answers, and of seconds of planned work, from which on their means
// count. maxLengths bounds the lengths that are kept for another plan.
const (
	MinAnswers     = 100
	minWorkSeconds = 60
	maxLengths     = 20_000
)

// maxDeparture is the fraction by which the length of answers and the time of work may differ from the plan until
// another plan is due.
const maxDeparture = 0.25

// adviceDelay is the time for which requests must be expected late without a break until more instances are advised.
const adviceDelay = 30 * time.Second

// newPlanMonitor returns the monitor of a core's plan of queues, which compares the lengths of answers and the work of
// requests with those that the plan expects, and registers its series and its alarm.
func newPlanMonitor(c *turn.Core) *planMonitor {
	labelNames := c.Metrics.Labels.Names()
	l := &planMonitor{
		c:           c,
		factors:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "work_factor", Help: "How much longer the work of requests takes than planned, as the policy has seen; 1: as planned."}, labelNames),
		outputs:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "output_tokens_mean", Help: "Mean tokens of recent answers."}, labelNames),
		alarm:       drift.NewAlarm("llm_drifted", "1 while answers or their work are so far from what was planned that another plan is due; the log tells the command.", "answers and their work are again as planned", c.Metrics.Registry),
		lateGauge:   prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "queue_expected_late", Help: "Requests that wait and are expected late, in the best order that was found."}),
		adviceGauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "scale_advice", Help: "Instances more that the requests which wait would need; 0 unless requests were expected late for 30 s on end."}),
	}
	c.Metrics.Registry.MustRegister(l.factors, l.outputs, l.lateGauge, l.adviceGauge)
	return l
}

// recordLengths stores the numbers of tokens of an answered request, which ServeLengths offers for another plan. The
// last maxLengths of all models are stored in a ring. Requests without a known prompt or answer are left out.
func (l *planMonitor) recordLengths(j *turn.Job) {
	r := &JobText(j).result
	s := answerLengths{int32(j.Model.Index), int32(r.PromptTokens), int32(r.OutputTokens)}
	if s.prompt < 1 || s.output < 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lengths) < maxLengths {
		l.lengths = append(l.lengths, s)
		return
	}
	l.lengths[l.nextSlot] = s
	l.nextSlot = (l.nextSlot + 1) % maxLengths
}

// update is called from time to time. It compares what the policy has learnt (speed of work, lengths of answers)
// with the plan, sets the series, and raises the alarm if the worst departure is too large: then another plan is
// due.
func (l *planMonitor) update(now time.Duration) {
	if l.Policy == nil {
		if l.Policy, _ = policy.FindExtension[learningPolicy](l.c.Policy); l.Policy == nil {
			return
		}
	}
	worstDeparture, notice := 0.0, ""
	observed := l.Policy.Observations()
	l.mu.Lock()
	l.observed = observed
	l.mu.Unlock()
	for _, x := range observed {
		labelValues := l.c.Metrics.Labels.Values(l.c.Tables.Models[x.Model].Key())
		l.factors.WithLabelValues(labelValues...).Set(x.Slowdown)
		if x.Answers > 0 {
			l.outputs.WithLabelValues(labelValues...).Set(x.MeanOutput)
		}
		if departure, message := l.departure(&x); departure > worstDeparture {
			worstDeparture, notice = departure, message
		}
	}
	l.alarm.Update(worstDeparture, maxDeparture, 0, func() string { return notice }, l.c.Options.Log)
	l.UpdateScaleAdvice(now)
}

// workReport returns how long the work of each model took on a kind of device, of what was planned, as the policy had seen
// it in the last second.
func (l *planMonitor) workReport() (list []formats.WorkReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.observed {
		x := &l.observed[i]
		w := formats.WorkReport{Model: l.c.Tables.Models[x.Model].Name, Device: l.c.Tables.Kinds[x.Kind], Factor: x.Slowdown, PlannedUS: document.Micros(x.ObservedWork * float64(time.Second))}
		isListed := slices.ContainsFunc(list, func(y formats.WorkReport) bool { return y.Model == w.Model && y.Device == w.Device })
		if x.ObservedWork > 0 && !isListed { // classes of a model have their work in common
			list = append(list, w)
		}
	}
	return list
}

// departure returns the larger of two relative differences between a model's requests and the plan (the mean tokens of
// answers and the time of their work), and a message that says which one and how to plan again. It returns 0 if neither
// is seen in enough answers or work.
func (l *planMonitor) departure(x *vqueue.ModelObservation) (worst float64, notice string) {
	files, workload := drift.InputFlags(l.c.Plan.Inputs)
	solveHint := fmt.Sprintf("type `plan solve%s -o plan.json` in the plan's folder, and send SIGHUP", files)
	name, label := l.c.Tables.Models[x.Model].Key(), l.c.ServedModels.Models[x.Model].Label
	plannedMean := formats.QueueOf(l.c.Plan).Classes[x.Model].OutputMean

	// Lengths of answers.
	if relativeDeparture := math.Abs(x.MeanOutput/max(plannedMean, 1) - 1); x.Answers >= MinAnswers && plannedMean > 0 && relativeDeparture > worst {
		lengths, fetch := "lengths-"+strings.ReplaceAll(label, "/", "-")+".csv", ""
		if l.c.Options.RatesURL != "" {
			fetch = fmt.Sprintf("type `curl -fsS '%s?of=%s' -o %s` in the plan's folder, ", strings.TrimSuffix(l.c.Options.RatesURL, "/rates")+"/lengths", name, path.Join(path.Dir(workload), lengths))
		}
		worst, notice = relativeDeparture, fmt.Sprintf("answers of %s are not as long as planned (%.0f tokens, planned %.0f): to re-plan, %swrite `lengths_file: %s` at its class in %s instead of prompt and output, %s", label, x.MeanOutput, plannedMean, fetch, lengths, workload, solveHint)
	}

	// Times of work.
	if relativeDeparture := math.Abs(x.Slowdown - 1); x.ObservedWork >= minWorkSeconds && relativeDeparture > worst {
		model := l.c.Tables.Models[x.Model].Name
		worst, notice = relativeDeparture, fmt.Sprintf("requests of %s take %.2f times as long as planned on %s: to re-plan, measure a server at rest with `plan profile --llm URL --model %s --device %s`, %s", label, x.Slowdown, l.c.Tables.Kinds[x.Kind], model, l.c.Tables.Kinds[x.Kind], solveHint)
	}
	return worst, notice
}

// UpdateScaleAdvice sets two gauges: how many waiting requests the policy expects to be late, and how many instances
// (servers of language models) should be added to serve them in time. The second is 0 unless requests were expected late
// for adviceDelay without a break. When the advice begins and ends, it writes one line to the log. now is on the core's
// clock. The monitor calls it with each of its regular updates.
func (l *planMonitor) UpdateScaleAdvice(now time.Duration) {
	lateRequests, waitingRequests, lastStart := l.Policy.ExpectedLateness()
	l.lateGauge.Set(float64(lateRequests))
	if lateRequests == 0 {
		if l.adviceLogged {
			l.c.Options.Log.Info("no request that waits is expected late any more")
		}
		l.lateSince, l.lateSum, l.waitingSum, l.samples, l.adviceLogged = 0, 0, 0, 0, false
		l.adviceGauge.Set(0)
		return
	}

	// Add to the averages since requests are expected late. lateSince 0 stands for none.
	l.lateSince = cmp.Or(l.lateSince, now)
	l.lateSum, l.waitingSum, l.samples = l.lateSum+lateRequests, l.waitingSum+waitingRequests, l.samples+1
	if now-l.lateSince < adviceDelay {
		return
	}
	// n working instances serve the share 1 − s of the requests in time, if s is the share of late ones. To serve all in
	// time takes n / (1 − s) instances at the same rate, so n · s / (1 − s) more.
	workingInstances := 0
	for d := range l.c.Tables.Devices {
		if l.c.Tables.InstanceOf(int32(d)) >= 0 && l.c.Backends.BackendOf(int32(d)).IsUp(int32(d)) {
			workingInstances++
		}
	}
	lateShare := float64(l.lateSum) / float64(l.waitingSum)
	moreInstances := math.Ceil(float64(max(workingInstances, 1)) * lateShare / max(1-lateShare, 1/float64(max(workingInstances, 1))))
	l.adviceGauge.Set(moreInstances)
	if !l.adviceLogged {
		l.adviceLogged = true
		l.c.Options.Log.Warn(fmt.Sprintf("the instances are too few: for %v, %.0f of %.0f requests that wait were expected late on average, and the last one to start in %v; with %g instances more, of %d that work, they would be in time",
			adviceDelay, float64(l.lateSum)/float64(l.samples), float64(l.waitingSum)/float64(l.samples), (lastStart - now).Round(time.Second), moreInstances, workingInstances))
	}
}

// ServeLengths handles GET /lengths: it answers with the tokens of prompt and answer of recent requests, the oldest
// first, as CSV that a workload's class reads as `lengths_file`. The parameter "of" selects a model, or MODEL/CLASS.
func ServeLengths(w http.ResponseWriter, r *http.Request, c *turn.Core) {
	k, ok := c.Answerer.(*TextAnswers)
	if !ok {
		http.Error(w, "the plan in force has no language models", http.StatusNotFound)
		return
	}
	filter, l := r.FormValue("of"), k.Monitor
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "prompt_tokens,output_tokens")
	l.mu.Lock()
	// The lengths are a ring; the next slot to be written has the oldest.
	list := append(append([]answerLengths{}, l.lengths[l.nextSlot:]...), l.lengths[:l.nextSlot]...)
	l.mu.Unlock()
	for _, s := range list {
		if filter == "" || filter == c.Tables.Models[s.model].Key().String() || filter == c.Tables.Models[s.model].Name {
			fmt.Fprintf(out, "%d,%d\n", s.prompt, s.output)
		}
	}
	_ = out.Flush() // an error means that the client is gone
}
