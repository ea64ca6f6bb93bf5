package executor

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// looked is how often the proxy of the test asks whether a server is ready.
const looked = 20 * time.Millisecond

// rolled are servers behind a plain proxy, which sends a request to the next one of those
// that were ready when it looked last.
type rolled struct {
	mu    sync.Mutex
	ready map[string]*httputil.ReverseProxy // nil: not ready
	turn  atomic.Int64
}

func (p *rolled) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address := range p.ready {
		resp, err := http.Get("http://" + address + "/v2/health/ready")
		p.ready[address] = nil
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			p.ready[address] = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
		}
	}
}

func (p *rolled) add(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready[address] = nil
}

func (p *rolled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	var list []*httputil.ReverseProxy
	for _, to := range p.ready {
		if to != nil {
			list = append(list, to)
		}
	}
	p.mu.Unlock()
	if len(list) == 0 {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	list[int(p.turn.Add(1))%len(list)].ServeHTTP(w, r)
}

// started serves a plan until stop is called; it is up when started returns.
func started(t *testing.T, path string, delay time.Duration) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addresses, ended := make(chan Addresses, 1), make(chan error, 1)
	go func() {
		_, err := Serve(ctx, ServeOptions{Options: replayOptions(true), Plan: path, HTTP: ":0", GRPC: AddressOff, Metrics: AddressOff, DrainTimeout: patient, DrainDelay: delay, OnReady: func(a Addresses) { addresses <- a }})
		ended <- err
	}()
	select {
	case a := <-addresses:
		var once sync.Once
		stop = func() {
			once.Do(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		}
		t.Cleanup(stop)
		return a.HTTP, stop
	case err := <-ended:
		t.Fatal(err)
	}
	return "", nil
}

// Two servers behind a plain proxy are replaced one after the other under load: no request
// is lost, since a server that leaves serves on until the proxy has seen that it is not ready.
func TestRollingUpdateLosesNoRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, twoStagePlan(time.Millisecond, 1, patient))
	p := &rolled{ready: map[string]*httputil.ReverseProxy{}}
	const delay = 500 * time.Millisecond
	var stops []func()
	for range 2 {
		address, stop := started(t, path, delay)
		p.add(address)
		stops = append(stops, stop)
	}
	p.look()
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() {
		for {
			select {
			case <-time.After(looked):
				p.look()
			case <-done:
				return
			}
		}
	})
	front := httptest.NewServer(p)
	defer front.Close()
	var sent, lost atomic.Int64
	for range 4 {
		background.Go(func() {
			for {
				select {
				case <-time.After(5 * time.Millisecond):
				case <-done:
					return
				}
				resp, err := http.Post(front.URL+"/v2/models/m/infer", "application/json", strings.NewReader(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}`))
				sent.Add(1)
				if err != nil {
					lost.Add(1)
					continue
				}
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					lost.Add(1)
					t.Logf("%d %s", resp.StatusCode, text)
				}
			}
		})
	}
	for _, stop := range stops {
		address, _ := started(t, path, 0)
		p.add(address)
		time.Sleep(5 * looked)
		stop() // returns after the delay and the drain
	}
	close(done)
	background.Wait()
	if sent.Load() < 50 || lost.Load() > 0 {
		t.Errorf("%d of %d requests were lost", lost.Load(), sent.Load())
	}
}
