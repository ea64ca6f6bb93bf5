package text

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/engine/llm"
	"inferplan/executor/series"
)

// ServerOffer is a server that may take one of the instances FirstInstance to LastInstance. The Instance of Server is
// not set.
type ServerOffer struct {
	FirstInstance, LastInstance int
	Server                      InstanceServer
}

// anyInstance is the LastInstance of a server that may take every instance, from 0.
const anyInstance = 1 << 30

// TakesAny reports whether the server may take every instance of a plan.
func (o *ServerOffer) TakesAny() bool { return o.FirstInstance == 0 && o.LastInstance == anyInstance }

// ServerSource lists servers that come and go. One goroutine at a time calls it.
type ServerSource interface {
	// Offers returns the servers that are there now. With an error, those of the call before count.
	Offers(ctx context.Context) ([]ServerOffer, error)
	// String returns the name of the source for the log.
	String() string
}

// Discovery gives servers that come and go to the instances of the plan in force. It asks its sources while a backend
// follows it. Several goroutines may use it at once.
type Discovery struct {
	Sources  []ServerSource
	Interval time.Duration // between two questions; the default is 2 s
	Log      *slog.Logger  // slog.Default if nil

	asking    sync.Mutex      // held while the sources are asked
	mu        sync.Mutex      // guards all below
	offers    [][]ServerOffer // by source, from its last answer
	problems  []string        // by source, the error that was logged last
	fixed     []InstanceServer
	placed    []InstanceServer // fixed among them
	standby   []string         // addresses of servers without an instance
	followers []*discoveryFollower
	cancel    context.CancelFunc // ends the questions
}

// discoveryFollower is a backend that follows a discovery. Before its loop runs, update is nil.
type discoveryFollower struct {
	discovery *Discovery
	instances int // of its plan
	update    func([]InstanceServer)
}

// follow asks the sources, and returns a follower for a plan with so many instances and the servers of these. fixed are
// servers that never go.
func (d *Discovery) follow(ctx context.Context, fixed []InstanceServer, instances int) (*discoveryFollower, []InstanceServer) {
	f := &discoveryFollower{discovery: d, instances: instances}
	d.mu.Lock()
	d.fixed = fixed
	d.followers = append(d.followers, f)
	isFirst := len(d.followers) == 1
	var askCtx context.Context
	if isFirst {
		askCtx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	d.mu.Unlock()
	if isFirst {
		d.ask(ctx)
		go d.run(askCtx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.place()
	return f, f.servers()
}

// begin has update called with the servers of the follower's instances, now and after every change.
func (f *discoveryFollower) begin(update func([]InstanceServer)) {
	f.discovery.mu.Lock()
	defer f.discovery.mu.Unlock()
	f.update = update
	update(f.servers())
}

// end ends the calls of update. Without a follower nobody asks the sources.
func (f *discoveryFollower) end() {
	d := f.discovery
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followers = slices.DeleteFunc(d.followers, func(other *discoveryFollower) bool { return other == f })
	if len(d.followers) == 0 {
		d.cancel()
		return
	}
	d.place()
}

// servers returns the servers of the follower's instances.
func (f *discoveryFollower) servers() []InstanceServer {
	var out []InstanceServer
	for _, s := range f.discovery.placed {
		if s.Instance < f.instances {
			out = append(out, s)
		}
	}
	return out
}

// run asks the sources every Interval until ctx ends.
func (d *Discovery) run(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(d.Interval, 2*time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.ask(ctx)
		}
	}
}

// ask asks every source and places the servers anew. An error of a source is logged once, until it is another.
func (d *Discovery) ask(ctx context.Context) {
	d.asking.Lock()
	defer d.asking.Unlock()
	offers, problems := make([][]ServerOffer, len(d.Sources)), make([]error, len(d.Sources))
	for i, s := range d.Sources {
		offers[i], problems[i] = s.Offers(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offers == nil {
		d.offers, d.problems = make([][]ServerOffer, len(d.Sources)), make([]string, len(d.Sources))
	}
	for i, err := range problems {
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			d.offers[i] = offers[i]
		}
		if text != "" && text != d.problems[i] {
			d.logger().Error("the servers are those of before", "source", d.Sources[i].String(), "error", text)
		}
		d.problems[i] = text
	}
	d.place()
}

// place gives servers to the instances of the follower's plan that has the most, logs what has changed, and tells the
// followers. The caller holds the lock.
func (d *Discovery) place() {
	instances := 0
	for _, f := range d.followers {
		instances = max(instances, f.instances)
	}
	before, standbyBefore := d.placed, d.standby
	d.placed, d.standby = placeServers(slices.Concat(d.offers...), d.fixed, before, instances)

	// Log what has changed.
	for _, s := range before {
		if !slices.Contains(d.placed, s) {
			d.logger().Warn("a server has left", "instance", s.Instance, "server", s.URL)
		}
	}
	for _, s := range d.placed {
		if !slices.Contains(before, s) && !slices.Contains(d.fixed, s) {
			d.logger().Info("a server takes an instance", "instance", s.Instance, "server", s.URL)
		}
	}
	for _, url := range d.standby {
		if !slices.Contains(standbyBefore, url) {
			d.logger().Warn("a server stands by: the instances of the plan that it may take have one", "server", url, "instances", instances)
		}
	}
	if slices.Equal(before, d.placed) {
		return
	}
	for _, f := range d.followers {
		if f.update != nil {
			f.update(f.servers())
		}
	}
}

func (d *Discovery) logger() *slog.Logger { return cmp.Or(d.Log, slog.Default()) }

// series returns the gauge of servers that stand by.
func (d *Discovery) series() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: series.Prefix + "standby_servers", Help: "Servers that were found and have no instance of the plan, because others have all that they may take."}, func() float64 {
		d.mu.Lock()
		defer d.mu.Unlock()
		return float64(len(d.standby))
	})
}

// serverIdentity is the address of a server, without a slash or /v1 at the end, and the model that it runs alone.
type serverIdentity struct{ address, model string }

// identity returns the identity of a server.
func (s *InstanceServer) identity() serverIdentity {
	c, err := llm.New(s.URL)
	if err != nil {
		return serverIdentity{s.URL, s.Model}
	}
	return serverIdentity{c.Address(), s.Model}
}

// placeServers returns which server is whose, ascending by instance and model, and the addresses of those that stand
// by. fixed stay where they are. A server that is offered still keeps its instance of before, if the plan has it. The
// others take the first instances that have no server, those that may take the fewest first. A server of all models
// takes an instance without any server, one of a single model an instance that has none for it.
func placeServers(offers []ServerOffer, fixed, before []InstanceServer, instances int) (placed []InstanceServer, standby []string) {
	placed = slices.Clone(fixed)
	isFree := func(s InstanceServer) bool {
		return s.Instance < instances && !slices.ContainsFunc(placed, func(p InstanceServer) bool {
			return p.Instance == s.Instance && (p.Model == s.Model || p.Model == "" || s.Model == "")
		})
	}

	// Each server counts once for a model. Those with few instances to choose from come first.
	known := map[serverIdentity]bool{}
	for i := range fixed {
		known[fixed[i].identity()] = true
	}
	var open []ServerOffer
	for _, o := range offers {
		if id := o.Server.identity(); !known[id] {
			known[id] = true
			open = append(open, o)
		}
	}
	slices.SortStableFunc(open, func(a, b ServerOffer) int {
		return cmp.Compare(a.LastInstance-a.FirstInstance, b.LastInstance-b.FirstInstance)
	})

	// Servers keep their instances.
	open = slices.DeleteFunc(open, func(o ServerOffer) bool {
		i := slices.IndexFunc(before, func(s InstanceServer) bool {
			o.Server.Instance = s.Instance
			return s == o.Server && s.Instance >= o.FirstInstance && s.Instance <= o.LastInstance
		})
		if i < 0 || !isFree(before[i]) {
			return false
		}
		placed = append(placed, before[i])
		return true
	})

	// The others take instances without a server.
	for _, o := range open {
		s, found := o.Server, false
		for s.Instance = o.FirstInstance; s.Instance <= min(o.LastInstance, instances-1) && !found; s.Instance++ {
			if found = isFree(s); found {
				placed = append(placed, s)
			}
		}
		if !found {
			standby = append(standby, s.URL)
		}
	}
	slices.SortFunc(placed, func(a, b InstanceServer) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Model, b.Model))
	})
	return placed, standby
}
