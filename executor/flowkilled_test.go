package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"inferplan/executor/oip"
	"inferplan/executor/tasks"
	"inferplan/executor/turn"
	"inferplan/formats/seeded"
)

// A killing is requests of a workflow while workers are killed, and what became of
// them.
type killing struct {
	x        *Executor
	inputs   [][]byte
	half     [][]byte // answers, by input
	turn     [][]byte
	passed   []string
	struck   []atomic.Int64 // by input: kills that its request survived, or not
	requests atomic.Int64
	kills    atomic.Int64
	ended    chan struct{} // no more kills

	mu        sync.Mutex
	answered  int
	elsewhere int // of them, of which a worker was killed that read what had been made of them
	gone      int
	reasons   map[string]int
	wrong     []string
}

// Each client has inputs of its own and one request at a time, so that an input that a
// worker is killed with names the request.
const (
	killClients = 24
	killInputs  = 8 // by client
)

// newKilling serves the workflow of winding on three workers, none of which has memory
// for all models.
func newKilling(t *testing.T) *killing {
	p := segmentPlan(3*time.Millisecond, 3, winding(), windingModels)
	p.Pools[0].Memory = 250 // of 300
	o := replayOptions(false)
	o.EvaluateReplay = true
	k := &killing{x: open(t, p, o), ended: make(chan struct{}), reasons: map[string]int{}, struck: make([]atomic.Int64, killClients*killInputs)}
	ask := alone(t, windingModels)
	for i := range k.struck {
		in := []byte{byte(i), byte(i >> 8), 3, 4}
		half, turn, passed := wound(ask, in, i%3)
		k.inputs, k.half, k.turn, k.passed = append(k.inputs, in), append(k.half, half), append(k.turn, turn), append(k.passed, passed)
	}
	return k
}

// client asks until so many requests have been made and no worker is killed any more.
// One request in twelve is given up after a moment.
func (k *killing) client(number int, total int64) {
	rng := seeded.New(uint64(number), "killing")
	for i := 0; ; i++ {
		select {
		case <-k.ended:
			if k.requests.Load() >= total {
				return
			}
		default:
		}
		k.requests.Add(1)
		k.ask(number*killInputs+i%killInputs, rng)
	}
}

func (k *killing) ask(i int, rng *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rng.IntN(12) == 0 {
		defer time.AfterFunc(time.Duration(rng.IntN(20_000))*time.Microsecond, cancel).Stop()
	}
	k.struck[i].Store(0)
	resp, err := wind(ctx, k.x, k.inputs[i], map[string]oip.Param{"n": int64(i % 3)})
	k.mu.Lock()
	defer k.mu.Unlock()
	var e *oip.Error
	switch {
	case err == nil:
		if !wounded(resp, k.half[i], k.turn[i], fmt.Sprint(k.passed[i])) {
			k.wrong = append(k.wrong, fmt.Sprintf("input %d: %v, expected %v %v", i, resp, k.half[i], k.turn[i]))
		}
		resp.Release()
		if k.answered++; k.struck[i].Load() > 0 {
			k.elsewhere++
		}
	case ctx.Err() != nil:
		k.gone++
	case errors.As(err, &e) && e.Reason != "":
		k.reasons[e.Reason]++
	default:
		k.wrong = append(k.wrong, fmt.Sprintf("input %d: ended without a reason: %v", i, err))
	}
}

// kill kills workers, each while it runs a task that reads what another one made, and
// another worker is there. They come spread over the requests.
func (k *killing) kill(kills, total int64) {
	defer close(k.ended)
	c := k.x.core.Load()
	for k.kills.Load() < kills {
		until(func() (done bool) {
			if k.requests.Load() < (k.kills.Load()+1)*total/(kills+2) {
				return false
			}
			c.Loop.CallInRound(func() { done = k.strike(c) })
			return done
		})
		k.kills.Add(1)
	}
}

// strike kills a worker, if there is one to kill. It is the core's turn.
func (k *killing) strike(c *turn.Core) bool {
	up := 0
	for _, d := range workersOf(c).OwnDevices {
		if d.Process != nil {
			up++
		}
	}
	for n := range workersOf(c).OwnDevices {
		d := workersOf(c).OwnDevices[(int(k.kills.Load())+n)%len(workersOf(c).OwnDevices)]
		if up < 2 || d.Process == nil || len(d.InFlight) == 0 || d.InFlight[0].Batch == nil {
			continue
		}
		f, found := c.Answerer.(*tasks.TaskAnswerer), false
		for _, t := range d.InFlight[0].Batch.Tasks {
			ta := &f.Tasks.List[t]
			if q := c.Ledger.RequestIn(ta.Req); ta.Inputs[0] >= 0 && q != nil && !q.Job.Answered {
				in := q.Job.Input(int(q.Sample), 0)
				k.struck[int(in[0])|int(in[1])<<8].Add(1)
				found = true
			}
		}
		if found {
			return syscall.Kill(d.Process.PID(), syscall.SIGKILL) == nil
		}
	}
	return false
}

// run makes so many requests, or more, during so many kills.
func (k *killing) run(t *testing.T, total, kills int64) {
	var wg sync.WaitGroup
	for n := range killClients {
		wg.Go(func() { k.client(n, total) })
	}
	k.kill(kills, total)
	wg.Wait()
	nothingHeld(t, k.x)
	refused := 0
	for _, n := range k.reasons {
		refused += n
	}
	c, loads, aborted := k.x.core.Load(), int64(0), int64(0)
	c.Loop.CallInRound(func() {
		aborted = c.Stats.AbortedBatches
		for _, d := range workersOf(c).OwnDevices {
			loads += d.Networks.Loads
		}
	})
	t.Logf("%d requests, %d workers killed: %d answered, %d of them after a kill from what was stored; refused %v; %d clients gone; %d batches lost, %d loads",
		k.requests.Load(), k.kills.Load(), k.answered, k.elsewhere, k.reasons, k.gone, aborted, loads)
	for _, w := range k.wrong[:min(len(k.wrong), 5)] {
		t.Error(w)
	}
	if n := k.requests.Load(); int64(k.answered+refused+k.gone+len(k.wrong)) != n || n < total {
		t.Errorf("%d answered, %d refused, %d gone, %d wrong of %d requests, at least %d", k.answered, refused, k.gone, len(k.wrong), n, total)
	}
	if k.answered == 0 || k.gone == 0 || k.elsewhere+refused+k.gone == 0 {
		t.Error("nothing was answered, or no client went away")
	}
}

// Workers are killed in the middle of requests that read what other workers made. A
// request ends on another worker from what is stored, or is answered with a reason.
// Nothing is held at the end, also of clients that went away. Long, 10,000 requests:
//
//	INFERPLAN_LONG=1 go test -run TestWorkflowsOutliveWorkers -v ./executor
func TestWorkflowsOutliveWorkers(t *testing.T) {
	k := newKilling(t)
	if !long() {
		k.run(t, 300, 4)
		return
	}
	k.run(t, 10_000, 60)
	if k.elsewhere < 10 {
		t.Errorf("%d requests were answered after a worker was killed with them, expected 10 or more", k.elsewhere)
	}
}
