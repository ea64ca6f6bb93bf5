package text

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats/served"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// queueViewPolicy is a policy that shows its queues.
type queueViewPolicy interface {
	QueueViews() []vqueue.QueueView
	Replans() vqueue.ReplanCounts
}

// queueStateOf returns the state of a core's queues. It is called in a round of the core, where nothing changes meanwhile.
// It returns nil if the policy shows no queues.
func queueStateOf(c *turn.Core) *served.Queue {
	p, shows := policy.FindExtension[queueViewPolicy](c.Policy)
	if !shows {
		return nil
	}
	now := c.Loop.Now()
	state := &served.Queue{Replans: served.Replans(p.Replans()), Instances: []served.QueueInstance{}}
	for _, q := range p.QueueViews() {
		state.Instances = append(state.Instances, instanceStateOf(c, &q, now))
	}
	return state
}

// instanceStateOf returns the state of one instance and its queue: what it runs, and when each group of requests is
// expected to start and due, in seconds from now.
func instanceStateOf(c *turn.Core, q *vqueue.QueueView, now time.Duration) served.QueueInstance {
	name := func(network int32) string {
		if network < 0 {
			return ""
		}
		return c.Tables.Networks[network].Name
	}
	i := served.QueueInstance{Instance: nameOf(c, q.Device), Up: q.IsUp, Model: name(q.LoadedNetwork), LoadingModel: name(q.LoadingNetwork), Running: q.RunningRequests, MaxRequests: -1}
	if a, ok := c.Backends.BackendOf(q.Device).(*agentBackend); ok {
		i.MaxRequests = int(a.byDevice[q.Device].maxOwnRequests.Load())
	}
	for _, g := range q.Groups {
		i.Groups = append(i.Groups, served.QueueGroup{Model: c.ServedModels.Models[g.Model].Label, Requests: g.Size, StartS: (g.Start - now).Seconds(), DueS: (g.Deadline - now).Seconds()})
	}
	return i
}

// Part implements turn.Answerer: the queues of the instances.
func (k *TextAnswers) Part() served.Part {
	if state := queueStateOf(k.Core); state != nil {
		return state
	}
	return &served.Queue{Instances: []served.QueueInstance{}} // a policy without queues, such as a baseline
}

// AddLengths adds /lengths, the tokens of answered requests, to the metrics server. inForce returns the core of the plan that
// is in force when a request comes.
func AddLengths(mux *http.ServeMux, inForce func() *turn.Core) {
	mux.HandleFunc("GET /lengths", func(w http.ResponseWriter, r *http.Request) { ServeLengths(w, r, inForce()) })
}

// groupGauges are the series of the queues. They read the queues when Prometheus asks.
type groupGauges struct {
	c                        *turn.Core
	groups, waiting, replans *prometheus.Desc
}

// newGroupGauges returns the series of a core's queues.
func newGroupGauges(c *turn.Core) *groupGauges {
	return &groupGauges{
		c:       c,
		groups:  prometheus.NewDesc(series.Prefix+"queue_groups", "Request groups in the queue of an instance.", []string{"instance"}, nil),
		waiting: prometheus.NewDesc(series.Prefix+"queue_requests", "Requests in the queue of an instance.", []string{"instance"}, nil),
		replans: prometheus.NewDesc(series.Prefix+"queue_replans_total", "Searches for an order of the queues, by how they ended. by_deadline: the earliest deadline goes first, because the search failed, found nothing better in time, or too much is late.", []string{"outcome"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (g *groupGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.groups
	ch <- g.waiting
	ch <- g.replans
}

// Collect sends Prometheus the present figures of the queues: groups (waiting requests that are served together) and
// requests by instance, and the policy's searches for a better order by outcome. A policy that shows no queues has none.
// It implements prometheus.Collector.
func (g *groupGauges) Collect(ch chan<- prometheus.Metric) {
	var s *served.Queue
	g.c.Loop.ReadInRound(func() { s = queueStateOf(g.c) })
	if s == nil {
		return
	}
	for _, i := range s.Instances {
		ch <- prometheus.MustNewConstMetric(g.groups, prometheus.GaugeValue, float64(len(i.Groups)), i.Instance)
		ch <- prometheus.MustNewConstMetric(g.waiting, prometheus.GaugeValue, float64(i.Waiting()), i.Instance)
	}
	for outcome, n := range map[string]int64{"adopted": s.Replans.Adopted, "stayed": s.Replans.Stayed, "out_of_time": s.Replans.OutOfTime, "failed": s.Replans.Failed, "by_deadline": s.Replans.ByDeadline} {
		ch <- prometheus.MustNewConstMetric(g.replans, prometheus.CounterValue, float64(n), outcome)
	}
}
