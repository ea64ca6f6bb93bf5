package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/testkit/durabletest"
	"inferplan/testkit/natstest"
)

// place is a store of these tests.
func place(url string, opt Options) durabletest.Opener {
	return func() (durable.Store, error) { return Open(context.Background(), url, opt) }
}

func TestStoreConformsToContract(t *testing.T) {
	url := natstest.Run(t)
	var n atomic.Int64
	for _, c := range []struct {
		name string
		opt  Options
	}{{"plain", Options{}}, {"sealed", Options{Sealer: durabletest.Sealer(t, "a")}}} {
		t.Run(c.name, func(t *testing.T) {
			durabletest.Run(t, func(t *testing.T) durabletest.Place {
				c.opt.Name, c.opt.Replicas = fmt.Sprint("s", n.Add(1)), 1
				return place(url, c.opt)
			})
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	url := natstest.Run(t)
	if err := place(url, Options{Replicas: 1, Sealer: durabletest.Sealer(t, "a")}).Open(t).Close(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []*durable.Sealer{nil, durabletest.Sealer(t, "b")} {
		if s, err := Open(t.Context(), url, Options{Replicas: 1, Sealer: key}); !errors.Is(err, durable.ErrWrongKey) {
			t.Errorf("opened with another key or none: %v, %v", s, err)
		}
	}
}

// A holder that is silent loses its record to another, and cannot write to it any more.
func TestSilentHolderLosesRecord(t *testing.T) {
	url := natstest.Run(t)
	opt := Options{Replicas: 1, AckWait: time.Second}
	a, b := place(url, opt).Open(t).(*Store), place(url, opt).Open(t).(*Store)
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := a.Accept(ctx, &durable.Record{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Claim(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(ctx, "r", 0, []byte("one "), 1); err != nil {
		t.Fatal(err)
	}
	// While a lives, b does not get it.
	short, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	if st, err := b.Claim(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("b claimed what a holds: %+v, %v", st, err)
	}
	// a hangs: it tells nothing any more, and does not know that it lost the record.
	a.mu.Lock()
	h := a.claims["r"]
	a.claims = map[string]*claim{}
	a.mu.Unlock()
	st, err := b.Claim(ctx)
	if err != nil || string(st.Text) != "one " {
		t.Fatalf("b: %+v, %v", st, err)
	}
	if err := b.Append(ctx, "r", 4, []byte("two"), 1); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.claims["r"] = h
	a.mu.Unlock()
	if err := a.Append(ctx, "r", 4, []byte("deux"), 1); !errors.Is(err, durable.ErrConflict) {
		t.Errorf("text of the one that hung: %v", err)
	}
	if err := a.Finish(ctx, "r", []byte("a")); !errors.Is(err, durable.ErrConflict) {
		t.Errorf("the end of the one that hung: %v", err)
	}
	if err := b.Finish(ctx, "r", []byte("b")); err != nil {
		t.Error(err)
	}
	if st, err := a.Get(ctx, "r"); err != nil || string(st.Text) != "one two" || string(st.Result) != "b" {
		t.Errorf("in the end: %+v, %v", st, err)
	}
}

func TestTooLargeRecordIsRefused(t *testing.T) {
	s := place(natstest.Run(t), Options{Replicas: 1}).Open(t)
	defer s.Close()
	if _, err := s.Accept(t.Context(), &durable.Record{ID: "r", Data: make([]byte, 2<<20)}); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("2 MiB: %v", err)
	}
}

// BenchmarkAccept stores requests of 2 KB in nodes that sync every write.
func BenchmarkAccept(b *testing.B) {
	for _, c := range []struct{ nodes, writers int }{{1, 1}, {1, 64}, {3, 1}, {3, 64}} {
		b.Run(fmt.Sprintf("nodes=%d/writers=%d", c.nodes, c.writers), func(b *testing.B) {
			url := ""
			if c.nodes == 1 {
				url = natstest.Run(b)
			} else {
				url = newCluster(b).URL
			}
			s := place(url, Options{Replicas: c.nodes}).Open(b)
			defer s.Close()
			data := make([]byte, 2048)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range c.writers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := s.Accept(b.Context(), &durable.Record{ID: fmt.Sprint(n), Data: data}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepts/s")
		})
	}
}
