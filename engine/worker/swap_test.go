package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/engine"
)

// swapConfig is a worker that swaps three services of different shapes.
func swapConfig(memory int64, load time.Duration, c *Cache) Config {
	cfg := replayConfig(time.Millisecond, time.Millisecond)
	cfg.Hello.Memory, cfg.Cache = memory, c
	first := cfg.Stages[0]
	cfg.Stages = nil
	for i, width := range []int64{5, 64, 1000} {
		s := first
		s.ID, s.Model = uint32(i), strings.Repeat("m", i+1)
		s.Inputs = []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{-1, width}}}
		s.LoadNS, s.WeightBytes = [2]int64{int64(load), 3 * int64(load)}, 1000
		cfg.Stages = append(cfg.Stages, s)
	}
	return cfg
}

// startSwapping starts a worker with a segment that holds the slots of the widest
// service and no more.
func startSwapping(t *testing.T, c Config, inside bool) (*Process, *Segment, []Layout) {
	t.Helper()
	start := Start
	if inside {
		start = func(ctx context.Context, c Config) (*Process, error) { return StartInside(ctx, c, Engines()) }
	}
	return startSwappingBy(t, c, start)
}

func startSwappingBy(t *testing.T, c Config, start func(context.Context, Config) (*Process, error)) (*Process, *Segment, []Layout) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	p, err := start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); p.Wait() })
	var layouts []Layout
	for i := range p.Stages {
		l := layoutOf(p.Stages[i], 2, 2)
		l.WarmSlots = 1
		layouts = append(layouts, l)
	}
	last := layouts[len(layouts)-1]
	seg, err := NewSegment(7, int64(last.Slots)*last.Stride)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	if err := p.Attach(ctx, seg, true); err != nil {
		t.Fatal(err)
	}
	return p, seg, layouts
}

// swap does a swap at run time and waits for its answer, and for the results of
// runs that come meanwhile.
func swap(t *testing.T, p *Process, q Swap) (SwapResult, []Result) {
	t.Helper()
	if err := p.SendSwap(q); err != nil {
		t.Fatal(err)
	}
	var got []Result
	for {
		var err error
		if got, err = p.Receive(got); err != nil {
			t.Fatal(err)
		}
		if a := p.SwapResults(); len(a) > 0 {
			if a[0].ID != q.ID || a[0].End < a[0].Start {
				t.Fatalf("%+v answers %+v", a[0], q)
			}
			return a[0], got
		}
	}
}

// answerOf runs a stage on two samples and gives its output.
func answerOf(t *testing.T, p *Process, seg *Segment, l Layout) []byte {
	t.Helper()
	loaded := p.Stages[l.ID]
	in := seg.TensorAt(loaded.Inputs, 0, 2, l.InputOffset(1))
	for i := range in {
		in[i] = byte(i) ^ byte(l.ID)
	}
	if err := p.Send(RunCommand{ID: 9, Stage: l.ID, Batch: 2, Segment: seg.ID, InputOffset: uint64(l.InputOffset(1)), OutputOffset: uint64(l.OutputOffset(1))}); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, p, 1)[0]; r.Code != OK {
		t.Fatalf("stage %d: %+v", l.ID, r)
	}
	return bytes.Clone(seg.TensorAt(loaded.Outputs, 0, 2, l.OutputOffset(1)))
}

// Services of other shapes take turns in the same bytes of shared memory, and
// answer as they do where each is alone. Memory that is full refuses, with the
// reason, and has room again once something went. What is not loaded refuses runs.
func TestServicesTakeTurns(t *testing.T) {
	for _, inside := range []bool{true, false} {
		cache := NewCache(1 << 20)
		defer cache.Close()
		p, seg, layouts := startSwapping(t, swapConfig(150, 0, cache), inside)
		answers := make([][]byte, len(layouts))
		for round := range 4 {
			for i, l := range layouts {
				a, _ := swap(t, p, Swap{ID: uint64(10*round + i), ToDevice: true, Bytes: 100, Stages: []Layout{l}})
				if a.Code != OK || a.FromFile != 0 {
					t.Fatalf("%+v", a)
				}
				got := answerOf(t, p, seg, l)
				if round == 0 {
					answers[i] = got
				} else if !bytes.Equal(got, answers[i]) {
					t.Errorf("round %d: service %d answers %x, expected %x", round, i, got, answers[i])
				}
				other := layouts[(i+1)%len(layouts)]
				a, _ = swap(t, p, Swap{ToDevice: true, Bytes: 51, Stages: []Layout{other}})
				if !errors.Is(a.Err(), ErrMemory) || !strings.Contains(a.Text, "100 of 150") {
					t.Errorf("loaded with full memory: %+v", a)
				}
				a, _ = swap(t, p, Swap{Bytes: 100, Stages: []Layout{l}})
				if a.Code != OK {
					t.Fatalf("%+v", a)
				}
				if err := p.Send(RunCommand{Stage: l.ID, Batch: 1, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}); err != nil {
					t.Fatal(err)
				}
				if r := receive(t, p, 1)[0]; r.Code == OK || !strings.Contains(r.Text, "not loaded") {
					t.Errorf("a run of what is not there: %+v", r)
				}
			}
		}
		if models, used := cache.Usage(); models != 3 || used != 3000 {
			t.Errorf("%d models with %d bytes in the host's memory", models, used)
		}
		if err := p.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	}
}

// A load runs beside batches: those that come meanwhile end before it does.
func TestLoadsRunBesideBatches(t *testing.T) {
	p, seg, layouts := startSwapping(t, swapConfig(0, 300*time.Millisecond, NewCache(1<<20)), false)
	ctx := context.Background()
	if a, err := p.Swap(ctx, Swap{ToDevice: true, Stages: layouts[:1]}); err != nil || a.Code != OK {
		t.Fatal(err, a)
	}
	l := layouts[0]
	runs := make([]RunCommand, 20)
	for i := range runs {
		runs[i] = RunCommand{ID: uint64(i), Batch: 1, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}
	}
	next := layouts[1]
	next.Base = l.Base + int64(l.Slots)*l.Stride
	if err := p.SendSwap(Swap{ID: 1, ToDevice: true, Stages: []Layout{next}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(runs...); err != nil {
		t.Fatal(err)
	}
	results := receive(t, p, len(runs))
	if len(p.SwapResults()) > 0 {
		t.Fatal("the load ended before the batches")
	}
	if _, err := p.Receive(nil); err != nil || len(p.SwapResults()) != 1 {
		t.Fatal(err, p.SwapResults())
	}
	a := p.SwapResults()[0]
	if took := time.Duration(a.End - a.Start); a.Code != OK || took < 300*time.Millisecond {
		t.Errorf("the load took %v: %+v", took, a)
	}
	for _, r := range results {
		if r.Code != OK || r.End > a.End {
			t.Errorf("a batch beside the load: %+v", r)
		}
	}
}

// What has no room in the host's memory comes from its file, which takes longer. A
// second worker finds what the first has cut.
func TestCacheHasABound(t *testing.T) {
	cache := NewCache(2500)
	defer cache.Close()
	for range 2 {
		p, _, layouts := startSwapping(t, swapConfig(0, time.Millisecond, cache), true)
		for i, l := range layouts {
			a, _ := swap(t, p, Swap{ToDevice: true, Stages: []Layout{l}})
			if cold := i == 2; a.Code != OK || (a.FromFile == 1) != cold || cold && a.End-a.Start < int64(3*time.Millisecond) {
				t.Errorf("service %d: %+v", i, a)
			}
			swap(t, p, Swap{Stages: []Layout{l}})
		}
		if models, used := cache.Usage(); models != 2 || used != 2000 {
			t.Errorf("%d models with %d bytes", models, used)
		}
	}
}

// A worker that is killed in the midst of a load is gone at once. One whose load
// never ends runs batches all the same, and ends with its parent.
func TestLoadThatNeverEnds(t *testing.T) {
	for _, killed := range []bool{true, false} {
		c := swapConfig(0, time.Hour, NewCache(1<<20))
		c.Stages[0].LoadNS = [2]int64{}
		p, seg, layouts := startSwapping(t, c, false)
		if a, err := p.Swap(context.Background(), Swap{ToDevice: true, Stages: layouts[:1]}); err != nil || a.Code != OK {
			t.Fatal(err, a)
		}
		if err := p.SendSwap(Swap{ID: 1, ToDevice: true, Stages: layouts[2:]}); err != nil {
			t.Fatal(err)
		}
		answerOf(t, p, seg, layouts[0])
		if killed {
			if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Receive(nil); err != io.EOF {
				t.Errorf("Receive: %v, want EOF", err)
			}
			continue
		}
		p.closeOnce.Do(func() { p.conn.Close() })
		<-p.Exited() // or the test's time-out
		if err := p.Wait(); err != nil {
			t.Errorf("a worker whose parent is gone: %v", err)
		}
	}
}

// A swap of what was not kept is answered, and so is one of what is loaded.
func TestBadSwapsAreAnswered(t *testing.T) {
	p, seg, layouts := startSwapping(t, swapConfig(0, 0, NewCache(1<<20)), true)
	unknown, beyond := layouts[0], layouts[0]
	unknown.ID, beyond.Base = 77, int64(len(seg.Data))
	for _, l := range []Layout{unknown, beyond} {
		if a, _ := swap(t, p, Swap{ToDevice: true, Stages: []Layout{layouts[1], l}}); a.Code == OK || a.Text == "" {
			t.Errorf("%+v", a)
		}
		if a, _ := swap(t, p, Swap{Stages: []Layout{l}}); a.Code == OK {
			t.Errorf("%+v", a)
		}
	}
	if a, _ := swap(t, p, Swap{ToDevice: true, Stages: layouts[1:2]}); a.Code != OK {
		t.Errorf("what came with a bad one stayed: %+v", a)
	}
	if a, _ := swap(t, p, Swap{ToDevice: true, Stages: layouts[1:2]}); a.Code == OK {
		t.Errorf("loaded twice: %+v", a)
	}
}

// A worker of another host fills the memory of its own host, swaps, and answers as
// a near one does. Its times are those of this machine's clock.
func TestFarWorkerSwaps(t *testing.T) {
	b := lobby(t, 0)
	far := joinConfig(b)
	far.CacheBytes = 2500 // for two of the three services
	join(t, far)
	near, nearSeg, nearLayouts := startSwapping(t, swapConfig(0, 0, NewCache(1<<20)), true)
	c := swapConfig(150, time.Millisecond, NewCache(0))
	p, seg, layouts := startSwappingBy(t, c, func(ctx context.Context, c Config) (*Process, error) { return b.Start(ctx, t, c) })
	for i, l := range layouts {
		before := monotonic()
		a, _ := swap(t, p, Swap{ID: uint64(i), ToDevice: true, Bytes: 100, Stages: []Layout{l}})
		if cold := i == 2; a.Code != OK || (a.FromFile == 1) != cold || a.Start < before || a.End > monotonic() || a.End-a.Start < int64(time.Millisecond) {
			t.Errorf("service %d: %+v", i, a)
		}
		if a, _ := swap(t, p, Swap{ToDevice: true, Bytes: 100, Stages: layouts[(i+1)%3 : (i+1)%3+1]}); !errors.Is(a.Err(), ErrMemory) {
			t.Errorf("loaded with full memory: %+v", a)
		}
		if a, _ := swap(t, near, Swap{ToDevice: true, Stages: nearLayouts[i : i+1]}); a.Code != OK {
			t.Fatal(a)
		}
		if want, got := answerOf(t, near, nearSeg, nearLayouts[i]), answerOf(t, p, seg, l); !bytes.Equal(got, want) {
			t.Errorf("service %d: %x from the far worker, %x from a near one", i, got, want)
		}
		if a, _ := swap(t, near, Swap{Stages: nearLayouts[i : i+1]}); a.Code != OK {
			t.Fatal(a)
		}
		if a, _ := swap(t, p, Swap{Bytes: 100, Stages: []Layout{l}}); a.Code != OK {
			t.Errorf("service %d is not taken away: %+v", i, a)
		}
	}
	if a, _ := swap(t, p, Swap{ToDevice: true, Stages: []Layout{{ID: 50}}}); a.Code == OK {
		t.Errorf("a service that is not there: %+v", a)
	}
}
