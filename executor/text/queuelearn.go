package text

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/drift"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// planMonitor compares what is served with what was planned: the length of answers, the time of work, and the number
// of instances. The policy adapts to the first two by itself; beyond a limit another plan is due.
type learning struct {
	c      *turn.Core
	Policy learner // nil if the policy learns nothing

	factors, outputs          *prometheus.GaugeVec
	alarm                     drift.Alarm // for the lengths and the times together
	late, more                prometheus.Gauge
	short                     time.Duration // since when requests are expected late without a break; 0 if none are
	lateSum, waitingSum, seen int           // sums over the samples since lateSince
	advised                   bool

	mu   sync.Mutex    // held by rounds that write and servers that read
	kept []lengthsSeen // of recent answers, at most maxLengths
	at   int           // where the next lengths go once there are maxLengths
}

// learningPolicy is a policy that reports what it has learnt.
type learner interface {
	Learnt() []vqueue.Learnt
	Lateness() (late, waiting int, last time.Duration)
}

// answerLengths are the tokens of the prompt and the answer of a request.
type lengthsSeen struct{ model, prompt, output int32 }

// MinAnswers and minWorkSeconds are the numbers of answers, and of seconds of planned work, from which on their means
// count. maxLengths bounds the lengths that are kept for another plan.
const (
	EnoughAnswers = 100
	enoughWork    = 60
	lengthsKept   = 20_000
)

// maxDeparture is the fraction by which the length of answers and the time of work may differ from the plan until
// another plan is due.
const departs = 0.25

// adviceDelay is the time for which requests must be expected late without a break until more instances are advised.
const shortAfter = 30 * time.Second

// newPlanMonitor registers the series of a core's monitor.
func newLearning(c *turn.Core) *learning {
	own := c.Metrics.Labels.Names()
	l := &learning{
		c:       c,
		factors: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "work_factor", Help: "How much longer the work of requests takes than planned, as the policy has seen; 1: as planned."}, own),
		outputs: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: series.Prefix + "output_tokens_mean", Help: "Mean tokens of recent answers."}, own),
		alarm: drift.Alarm{Back: "answers and their work are again as planned",
			Gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "llm_drifted", Help: "1 while answers or their work are so far from what was planned that another plan is due; the log tells the command."})},
		late: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "queue_expected_late", Help: "Requests that wait and are expected late, in the best order that was found."}),
		more: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "scale_advice", Help: "Instances more that the requests which wait would need; 0 unless requests were expected late for 30 s on end."}),
	}
	c.Metrics.Registry.MustRegister(l.factors, l.outputs, l.alarm.Gauge, l.late, l.more)
	return l
}

// recordLengths keeps the lengths of an answered request, in place of the oldest if there are maxLengths.
func (l *learning) answered(j *turn.Job) {
	r := &JobText(j).result
	s := lengthsSeen{int32(j.Model.Index), int32(r.PromptTokens), int32(r.OutputTokens)}
	if s.prompt < 1 || s.output < 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) < lengthsKept {
		l.kept = append(l.kept, s)
		return
	}
	l.kept[l.at] = s
	l.at = (l.at + 1) % lengthsKept
}

// update compares what the policy has learnt with the plan, and sets the series and the alarm.
func (l *learning) tick(now time.Duration) {
	if l.Policy == nil {
		if l.Policy, _ = policy.As[learner](l.c.Policy); l.Policy == nil {
			return
		}
	}
	worst, notice := 0.0, ""
	for _, x := range l.Policy.Learnt() {
		own := l.c.Metrics.Labels.Values(l.c.Tables.Models[x.Model].Key())
		l.factors.WithLabelValues(own...).Set(x.Factor)
		if x.Answers > 0 {
			l.outputs.WithLabelValues(own...).Set(x.Output)
		}
		if by, text := l.departure(&x); by > worst {
			worst, notice = by, text
		}
	}
	l.alarm.Update(worst, departs, 0, func() string { return notice }, l.c.Options.Log)
	l.Size(now)
}

// departure returns the fraction by which a model differs from the plan, and a message that says how to plan again.
// It is 0 if the difference is not significant.
func (l *learning) departure(x *vqueue.Learnt) (by float64, notice string) {
	files, workload := drift.Inputs(l.c.Plan.Inputs)
	again := fmt.Sprintf("type `plan solve%s -o plan.json` in the plan's folder, and send SIGHUP", files)
	name, label := l.c.Tables.Models[x.Model].Key(), l.c.Served.Models[x.Model].Label
	planned := formats.QueueOf(l.c.Plan).Classes[x.Model].OutputMean

	// Lengths of answers.
	if off := math.Abs(x.Output/max(planned, 1) - 1); x.Answers >= EnoughAnswers && planned > 0 && off > by {
		lengths, fetch := "lengths-"+strings.ReplaceAll(label, "/", "-")+".csv", ""
		if l.c.Options.RatesURL != "" {
			fetch = fmt.Sprintf("type `curl -fsS '%s?of=%s' -o %s` in the plan's folder, ", strings.TrimSuffix(l.c.Options.RatesURL, "/rates")+"/lengths", name, path.Join(path.Dir(workload), lengths))
		}
		by, notice = off, fmt.Sprintf("answers of %s are not as long as planned (%.0f tokens, planned %.0f): to re-plan, %swrite `lengths_file: %s` at its class in %s instead of prompt and output, %s", label, x.Output, planned, fetch, lengths, workload, again)
	}

	// Times of work.
	if off := math.Abs(x.Factor - 1); x.Work >= enoughWork && off > by {
		model := l.c.Tables.Models[x.Model].Name
		by, notice = off, fmt.Sprintf("requests of %s take %.2f times as long as planned on %s: to re-plan, measure a server at rest with `plan profile --llm URL --model %s --device %s`, %s", label, x.Factor, l.c.Tables.Kinds[x.Kind], model, l.c.Tables.Kinds[x.Kind], again)
	}
	return by, notice
}

// UpdateScaleAdvice sets the number of instances that should be added. It is 0 unless requests were expected late for
// adviceDelay without a break.
func (l *learning) Size(now time.Duration) {
	late, waiting, last := l.Policy.Lateness()
	l.late.Set(float64(late))
	if late == 0 {
		if l.advised {
			l.c.Options.Log.Info("no request that waits is expected late any more")
		}
		l.short, l.lateSum, l.waitingSum, l.seen, l.advised = 0, 0, 0, 0, false
		l.more.Set(0)
		return
	}

	// Average over the samples since requests are expected late.
	if l.short == 0 {
		l.short = now
	}
	l.lateSum, l.waitingSum, l.seen = l.lateSum+late, l.waitingSum+waiting, l.seen+1
	if now-l.short < shortAfter {
		return
	}
	// With n instances that work and a share s of late requests, n · s / (1 − s) more instances would serve the late
	// ones.
	n := 0
	for d := range l.c.Tables.Devices {
		if l.c.Tables.InstanceOf(int32(d)) >= 0 && l.c.BackendOf(int32(d)).Up(int32(d)) {
			n++
		}
	}
	part := float64(l.lateSum) / float64(l.waitingSum)
	more := math.Ceil(float64(max(n, 1)) * part / max(1-part, 1/float64(max(n, 1))))
	l.more.Set(more)
	if !l.advised {
		l.advised = true
		l.c.Options.Log.Warn(fmt.Sprintf("the instances are too few: for %v, %.0f of %.0f requests that wait were expected late on average, and the last one to start in %v; with %g instances more, of %d that work, they would be in time",
			shortAfter, float64(l.lateSum)/float64(l.seen), float64(l.waitingSum)/float64(l.seen), (last - now).Round(time.Second), more, n))
	}
}

// ServeLengths answers with the lengths of recent requests as CSV, in the form of `lengths_file` of a workload's
// class. The parameter "of" selects a model, or MODEL/CLASS.
func ServeLengths(w http.ResponseWriter, r *http.Request, c *turn.Core) {
	k, ok := c.Answers.(*Tokens)
	if !ok {
		http.Error(w, "the plan in force has no language models", http.StatusNotFound)
		return
	}
	of, l := r.FormValue("of"), k.Learning
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "prompt_tokens,output_tokens")
	l.mu.Lock()
	list := append(append([]lengthsSeen{}, l.kept[l.at:]...), l.kept[:l.at]...)
	l.mu.Unlock()
	for _, s := range list {
		if of == "" || of == c.Tables.Models[s.model].Key().String() || of == c.Tables.Models[s.model].Name {
			fmt.Fprintf(out, "%d,%d\n", s.prompt, s.output)
		}
	}
	_ = out.Flush() // an error means that the client is gone
}
