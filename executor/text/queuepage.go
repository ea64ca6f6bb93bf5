package text

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// QueueState is the state of the queues, for their page. Times are in seconds from now.
type QueueState struct {
	Open      int             `json:"open"`
	Replans   replanCounts    `json:"replans"`
	Instances []instanceState `json:"instances"`
}

type replanCounts struct {
	Adopted    int64 `json:"adopted"`
	Stayed     int64 `json:"stayed"`
	OutOfTime  int64 `json:"out_of_time"`
	Failed     int64 `json:"failed"`
	ByDeadline int64 `json:"by_deadline"`
}

type instanceState struct {
	Instance       string       `json:"instance"`
	Up             bool         `json:"up"`
	Model          string       `json:"model,omitempty"`
	LoadingModel   string       `json:"coming,omitempty"`
	Running        int          `json:"running"`
	MaxOwnRequests int          `json:"room"`
	Groups         []groupState `json:"groups,omitempty"`
}

type groupState struct {
	Model    string  `json:"of"`
	Requests int     `json:"requests"`
	StartIn  float64 `json:"start_s"`
	DueIn    float64 `json:"due_s"`
}

// queueViewPolicy is a policy that shows its queues.
type queueViewPolicy interface {
	QueueViews() []vqueue.QueueView
	Replans() vqueue.ReplanCounts
}

// queueStateOf returns the state of a core's queues for the page and the metrics. It reads it in the core's loop,
// where nothing changes meanwhile. It returns false if the policy shows no queues.
func queueStateOf(c *turn.Core) (s QueueState, ok bool) {
	p, shows := policy.FindExtension[queueViewPolicy](c.Policy)
	if !shows {
		return s, false
	}
	read := func() {
		now := c.Loop.Now()
		s.Open = c.Ledger.Pending()
		s.Replans = replanCounts(p.Replans())
		for _, q := range p.QueueViews() {
			s.Instances = append(s.Instances, instanceStateOf(c, &q, now))
		}
	}
	if !c.Loop.CallInRound(read) {
		read() // after the last round nobody writes the state any more
	}
	return s, true
}

// instanceStateOf returns the state of one instance and its queue, for the page: what it runs, and when each group
// of requests is expected to start and due, in seconds from now.
func instanceStateOf(c *turn.Core, q *vqueue.QueueView, now time.Duration) instanceState {
	name := func(network int32) string {
		if network < 0 {
			return ""
		}
		return c.Tables.Networks[network].Name
	}
	i := instanceState{Instance: nameOf(c, q.Device), Up: q.IsUp, Model: name(q.LoadedNetwork), LoadingModel: name(q.LoadingNetwork), Running: q.RunningRequests, MaxOwnRequests: -1}
	if a, ok := c.Backends.BackendOf(q.Device).(*agentBackend); ok {
		i.MaxOwnRequests = int(a.byDevice[q.Device].maxOwnRequests.Load())
	}
	for _, g := range q.Groups {
		i.Groups = append(i.Groups, groupState{Model: c.ServedModels.Models[g.Model].Label, Requests: g.Size, StartIn: (g.Start - now).Seconds(), DueIn: (g.Deadline - now).Seconds()})
	}
	return i
}

//go:embed queues.html
var queuesPage []byte

// pageInterval is the time between two updates of the page.
const pageInterval = time.Second

// AddPages adds the page that shows the queues of requests for text to the metrics server: /queues (HTML), its state as
// JSON, the events by which the page follows it, and /lengths, the tokens of answered requests. inForce returns the core
// of the plan that is in force when a request comes.
func AddPages(mux *http.ServeMux, inForce func() *turn.Core) {
	mux.HandleFunc("GET /queues", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
		w.Write(queuesPage)
	})
	mux.HandleFunc("GET /queues.json", func(w http.ResponseWriter, _ *http.Request) {
		s, ok := queueStateOf(inForce())
		if !ok {
			http.Error(w, "the plan's policy shows no queues", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /queues/events", func(w http.ResponseWriter, r *http.Request) { streamQueueState(w, r, inForce) })
	mux.HandleFunc("GET /lengths", func(w http.ResponseWriter, r *http.Request) { ServeLengths(w, r, inForce()) })
}

// streamQueueState sends the state of the queues as events, every pageInterval, until the client disconnects or the
// plan in force has no queues. A client that does not read for ten intervals is cut off.
func streamQueueState(w http.ResponseWriter, r *http.Request, inForce func() *turn.Core) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	tick := time.NewTicker(pageInterval)
	defer tick.Stop()
	for {
		s, ok := queueStateOf(inForce())
		if !ok {
			return
		}
		data, err := json.Marshal(s)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(10 * pageInterval))
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
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
	s, ok := queueStateOf(g.c)
	if !ok {
		return
	}
	for _, i := range s.Instances {
		n := 0
		for _, x := range i.Groups {
			n += x.Requests
		}
		ch <- prometheus.MustNewConstMetric(g.groups, prometheus.GaugeValue, float64(len(i.Groups)), i.Instance)
		ch <- prometheus.MustNewConstMetric(g.waiting, prometheus.GaugeValue, float64(n), i.Instance)
	}
	for outcome, n := range map[string]int64{"adopted": s.Replans.Adopted, "stayed": s.Replans.Stayed, "out_of_time": s.Replans.OutOfTime, "failed": s.Replans.Failed, "by_deadline": s.Replans.ByDeadline} {
		ch <- prometheus.MustNewConstMetric(g.replans, prometheus.CounterValue, float64(n), outcome)
	}
}
