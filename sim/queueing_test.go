package sim_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// The simulator against queueing theory: the mean wait of M/M/k, M/D/1 and
// M/G/1 queues, run through the same loop, devices and service models as any
// plan, by a policy that serves first come, first served.
//
// Waits at high load vary so slowly that plain batch means would need tens of
// millions of customers per run. The intervals therefore use control variates:
// per batch, the wait is regressed on quantities whose mean is exactly 0 for
// any first-come, first-served queue, since a customer's wait is independent of
// its own service time S and of the gap A that follows it:
//
//	S-E[S],  A-E[A],  W(S-E[S]),  W(A-E[A]).
//
// The last two carry most of the variance of the wait in heavy traffic. They
// say nothing about the mean wait itself, which the run must show.

// queueStation serves one model first come, first served, and takes its waits.
type queueStation struct {
	idleDevices []int32
	devices     int
	queue       []int32 // ring of request slots, length a power of two
	head        int
	n           int
	arrivedAt   []time.Duration // by request slot
	serial      []int64         // by request slot
	stats       *waitStats
	batch       []int32 // by device: request slot
	lastAt      time.Duration
	count       int64
}

func newStation(k int, stats *waitStats) *queueStation {
	s := &queueStation{devices: k, queue: make([]int32, 1<<16), arrivedAt: make([]time.Duration, 1<<17), serial: make([]int64, 1<<17), stats: stats, batch: make([]int32, k)}
	for d := k - 1; d >= 0; d-- {
		s.idleDevices = append(s.idleDevices, int32(d))
	}
	return s
}

func (s *queueStation) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		s.arrivedAt[ev.Req], s.serial[ev.Req] = now, s.count
		s.stats.gap(s.count-1, now-s.lastAt)
		s.lastAt = now
		s.count++
		s.queue[(s.head+s.n)&(len(s.queue)-1)] = ev.Req
		s.n++
	case policy.BatchFinished:
		s.stats.service(s.serial[s.batch[ev.Device]], ev.End-ev.Start)
		s.idleDevices = append(s.idleDevices, ev.Device)
	default:
		return
	}
	for s.n > 0 && len(s.idleDevices) > 0 {
		r, d := s.queue[s.head], s.idleDevices[len(s.idleDevices)-1]
		s.head = (s.head + 1) & (len(s.queue) - 1)
		s.n--
		s.idleDevices = s.idleDevices[:len(s.idleDevices)-1]
		s.batch[d] = r
		s.stats.wait(s.serial[r], now-s.arrivedAt[r])
		out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Batch: d, Size: 1, HopCount: 1, TaskFirst: int32(len(out.Tasks)), HopFirst: int32(len(out.Hops))})
		out.Tasks = append(out.Tasks, r)
		out.Hops = append(out.Hops, policy.Hop{Device: d, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: now + 1})
	}
}

const (
	batches  = 40
	controls = 4
	recent   = 1 << 17 // customers whose wait, gap and service are not all known
)

// waitStats gathers batch means of waits and controls, by the customer's number.
type waitStats struct {
	skip, length                int64 // customers of the warm-up and of each batch
	meanS, meanA                float64
	sums                        [batches][1 + controls]float64
	waits, gaps                 []float64
	waitCustomers, gapCustomers []int64 // which customer's
}

func newWaitStats(skip, customers int64, meanS, meanA float64) *waitStats {
	return &waitStats{skip: skip, length: customers / batches, meanS: meanS, meanA: meanA,
		waits: make([]float64, recent), gaps: make([]float64, recent), waitCustomers: make([]int64, recent), gapCustomers: make([]int64, recent)}
}

func (w *waitStats) sumsOf(n int64) *[1 + controls]float64 {
	if n < w.skip || (n-w.skip)/w.length >= batches {
		return nil
	}
	return &w.sums[(n-w.skip)/w.length]
}

func (w *waitStats) wait(n int64, d time.Duration) {
	i := n & (recent - 1)
	w.waits[i], w.waitCustomers[i] = d.Seconds(), n+1
	if b := w.sumsOf(n); b != nil {
		b[0] += w.waits[i]
		if w.gapCustomers[i] == n+1 {
			b[4] += w.waits[i] * w.gaps[i]
		}
	}
}

// gap is the time from customer n to the next.
func (w *waitStats) gap(n int64, d time.Duration) {
	if n < 0 {
		return
	}
	i := n & (recent - 1)
	w.gaps[i], w.gapCustomers[i] = d.Seconds()-w.meanA, n+1
	if b := w.sumsOf(n); b != nil {
		b[2] += w.gaps[i]
		if w.waitCustomers[i] == n+1 {
			b[4] += w.waits[i] * w.gaps[i]
		}
	}
}

// service is known after the wait.
func (w *waitStats) service(n int64, d time.Duration) {
	if b := w.sumsOf(n); b != nil {
		s := d.Seconds() - w.meanS
		b[1] += s
		b[3] += w.waits[n&(recent-1)] * s
	}
}

// interval regresses the batch means of the wait on those of the controls; the
// intercept, where all controls are 0, estimates the mean wait. A control that
// does not vary (service in M/D/1) is left out.
func (w *waitStats) interval(confidence float64) (mean, half float64) {
	used := []int{}
	for c := 1; c <= controls; c++ {
		low, high := math.Inf(1), math.Inf(-1)
		for b := range w.sums {
			low, high = min(low, w.sums[b][c]), max(high, w.sums[b][c])
		}
		if high-low > 1e-9*float64(w.length)*w.meanA {
			used = append(used, c)
		}
	}
	p := len(used) + 1
	x, y := mat.NewDense(batches, p, nil), mat.NewVecDense(batches, nil)
	for b := range w.sums {
		y.SetVec(b, w.sums[b][0]/float64(w.length))
		x.Set(b, 0, 1)
		for j, c := range used {
			x.Set(b, j+1, w.sums[b][c]/float64(w.length)/w.meanA) // any scale will do
		}
	}
	var beta mat.VecDense
	if err := beta.SolveVec(x, y); err != nil {
		panic(err)
	}
	var fit, res mat.VecDense
	fit.MulVec(x, &beta)
	res.SubVec(y, &fit)
	dof := float64(batches - p)
	var xtx, inv mat.Dense
	xtx.Mul(x.T(), x)
	if err := inv.Inverse(&xtx); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			panic(err)
		}
	}
	variance := mat.Dot(&res, &res) / dof * inv.At(0, 0)
	t := distuv.StudentsT{Sigma: 1, Nu: dof}.Quantile(1 - (1-confidence)/2)
	return beta.AtVec(0), t * math.Sqrt(variance)
}

// queueCase is a kind of station.
type queueCase struct {
	name    string
	servers int
	service func(t *policy.Tables, seed uint64) sim.Service
	cv      float64 // of service, for one server
}

const meanService = 1e-3 // seconds

var queueCases = []queueCase{
	{"M/M/1", 1, exponential, 1},
	{"M/M/2", 2, exponential, 1},
	{"M/M/8", 8, exponential, 1},
	{"M/D/1", 1, func(t *policy.Tables, _ uint64) sim.Service { return sim.ExactService(t) }, 0},
	{"M/G/1", 1, func(t *policy.Tables, seed uint64) sim.Service { return sim.JitterService(t, sim.Lognormal, 0.7, seed) }, 0.7},
}

func exponential(t *policy.Tables, seed uint64) sim.Service {
	return sim.JitterService(t, sim.Exponential, 1, seed)
}

// meanWait is the closed form: Erlang's C for M/M/k, Pollaczek-Khinchine for
// one server.
func (c *queueCase) meanWait(rho float64) float64 {
	if c.servers == 1 {
		return rho * meanService * (1 + c.cv*c.cv) / (2 * (1 - rho))
	}
	k := float64(c.servers)
	erlangB := 1.0
	for n := 1.0; n <= k; n++ {
		erlangB = rho * k * erlangB / (n + rho*k*erlangB)
	}
	erlangC := erlangB / (1 - rho*(1-erlangB))
	return erlangC * meanService / (k * (1 - rho))
}

var queueLoads = []float64{0.5, 0.8, 0.9, 0.95}

// customers is how many customers give a half-width of at most 2 %.
func (c *queueCase) customers(rho float64) int64 {
	n := map[float64]int64{0.5: 400_000, 0.8: 300_000, 0.9: 600_000, 0.95: 4_000_000}[rho]
	if c.cv == 0 {
		n = min(n, 1_200_000)
	}
	switch {
	case c.servers == 2 && rho < 0.95:
		n *= 2
	case c.servers == 8: // few wait at all
		n = map[float64]int64{0.5: 6_000_000, 0.8: 1_500_000, 0.9: 2_000_000, 0.95: 3_500_000}[rho]
	}
	return n
}

func (c *queueCase) simulate(rho float64, seed uint64) (mean, half float64, events int64, err error) {
	customers := c.customers(rho)
	skip := int64(20 / ((1 - rho) * (1 - rho)))
	meanA := meanService / (rho * float64(c.servers))
	stats := newWaitStats(skip, customers, meanService, meanA)
	plan := policytest.Single(c.servers, true, policytest.Model{Batch: 1, First: time.Duration(meanService * 1e9), SLO: time.Hour, RPS: 1 / meanA})
	tables, err := policies.Compile(plan)
	if err != nil {
		return 0, 0, 0, err
	}
	d := time.Duration(float64(skip+customers) * 1.02 * meanA * 1e9)
	src := arrivals.Poisson(seeded.New(seed, "arrivals/"+c.name), 0, 1/meanA, d)
	res, err := sim.Run(context.Background(), sim.Config{
		Tables: tables, Policy: newStation(c.servers, stats), Source: src, Service: c.service(tables, seed),
		Duration: d, Warmup: d, // the report's latencies are not needed
	})
	if err != nil {
		return 0, 0, 0, err
	}
	mean, half = stats.interval(0.99)
	return mean, half, res.Events, nil
}

// TestQueueingTheory runs the grid of the queues at four loads. By default
// with one seed; INFERPLAN_LONG=1 takes all twenty.
func TestQueueingTheory(t *testing.T) {
	seeds := 1
	if os.Getenv("INFERPLAN_LONG") != "" {
		seeds = 20
	}
	if testing.Short() {
		t.Skip("simulates tens of millions of customers: leave out -short to run it")
	}
	type outcome struct {
		inside, wide int
		worst        float64
		events       int64
	}
	type job struct{ c, l, seed int }
	jobs := make(chan job)
	outcomes := make([][]outcome, len(queueCases))
	for i := range outcomes {
		outcomes[i] = make([]outcome, len(queueLoads))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range jobs {
				c, rho := &queueCases[j.c], queueLoads[j.l]
				mean, half, events, err := c.simulate(rho, uint64(j.seed+1))
				mu.Lock()
				if err != nil {
					t.Errorf("%s at %v, seed %d: %v", c.name, rho, j.seed+1, err)
				}
				o := &outcomes[j.c][j.l]
				want := c.meanWait(rho)
				if math.Abs(mean-want) <= half {
					o.inside++
				} else {
					t.Logf("%s at %v, seed %d: %.6g +- %.2g ms, theory %.6g ms: outside", c.name, rho, j.seed+1, mean*1e3, half*1e3, want*1e3)
				}
				if half > 0.02*mean {
					o.wide++
				}
				o.worst = max(o.worst, half/mean)
				o.events += events
				mu.Unlock()
			}
		})
	}
	for c := range queueCases {
		for l := range queueLoads {
			for seed := range seeds {
				jobs <- job{c, l, seed}
			}
		}
	}
	close(jobs)
	wg.Wait()
	inside, total := 0, 0
	var events int64
	for c := range queueCases {
		line := fmt.Sprintf("%-6s", queueCases[c].name)
		for l, rho := range queueLoads {
			o := &outcomes[c][l]
			inside, total, events = inside+o.inside, total+seeds, events+o.events
			line += fmt.Sprintf("  load %.2f: %2d/%d inside, half-width <= %.2f %%", rho, o.inside, seeds, 100*o.worst)
			if o.wide > 0 {
				t.Errorf("%s at %v: %d of %d intervals are wider than 2 %% of the mean", queueCases[c].name, rho, o.wide, seeds)
			}
		}
		t.Log(line)
	}
	t.Logf("%d of %d 99 %% intervals hold the closed form; %.1f million events", inside, total, float64(events)/1e6)
	if float64(inside) < 0.96*float64(total)-1e-9 {
		t.Errorf("the closed form lies in %d of %d intervals, want at least 96 %%", inside, total)
	}
}
