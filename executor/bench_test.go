package executor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"inferplan/cputime"
	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/executor/load"
	"inferplan/executor/oip"
	"inferplan/executor/oip/oippb"
	"inferplan/executor/series"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// With this variable the test binary is a server of the plan that it names, so
// that benchmarks can tell the server's CPU time from the client's.
const (
	asServer  = "INFERPLAN_TEST_SERVE"
	serverDir = "INFERPLAN_TEST_MODELS"
)

func serveForTest(plan string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if path := os.Getenv("INFERPLAN_TEST_PROFILE"); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	o := onnxOptions(os.Getenv(serverDir))
	o.Env = append(o.Env, asServer+"=")
	_, err := Serve(ctx, ServeOptions{
		Options: o, Plan: plan, HTTP: ":0", GRPC: ":0", Metrics: ":0",
		OnReady: func(a Addresses) { json.NewEncoder(os.Stdout).Encode(a) },
	})
	return err
}

// apart starts a server process.
func apart(t testing.TB, plan *formats.Plan, dir string) Addresses {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.json")
	writePlan(t, path, plan)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"="+path, serverDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	var a Addresses
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&a); err != nil {
		t.Fatalf("server's addresses: %v", err)
	}
	return a
}

// usage is what a server says of itself.
type usage struct{ front, engine, overhead, requests, batches float64 }

func usageOf(t testing.TB, a Addresses) usage {
	t.Helper()
	resp, err := http.Get("http://" + a.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var u usage
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch {
		case name == "process_cpu_seconds_total":
			u.front = v
		case strings.HasPrefix(name, series.Prefix+"worker_cpu_seconds_total") && strings.Contains(name, `part="engine"`):
			u.engine += v
		case strings.HasPrefix(name, series.Prefix+"worker_cpu_seconds_total"):
			u.overhead += v
		case strings.HasPrefix(name, series.Prefix+"requests_total"):
			u.requests += v
		case strings.HasPrefix(name, series.Prefix+"batch_size_count"):
			u.batches += v
		}
	}
	return u
}

func mlp(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	m, err := graph.MLP(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(filepath.Join(dir, "mlp.onnx")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// BenchmarkOverhead is the CPU time of front end and worker, less that of the
// engine, per single-sample request of a tiny MLP at 3000 requests/s. Run it
// with -benchtime 1x.
func BenchmarkOverhead(b *testing.B) {
	withORT(b)
	dir := mlp(b)
	a := apart(b, onnxPlan(b, filepath.Join(dir, "mlp.onnx"), 20*time.Microsecond, 8, 50*time.Millisecond), dir)
	for _, url := range []string{"grpc://" + a.GRPC, "http://" + a.HTTP} {
		protocol, _, _ := strings.Cut(url, ":")
		b.Run(protocol, func(b *testing.B) {
			const rate, d = 3000, 4 * time.Second
			var before, after usage
			var r *load.Result
			for b.Loop() {
				warm := load.Config{URL: url, Models: []load.Model{{Name: "mlp", SLO: 50 * time.Millisecond}}, Duration: 300 * time.Millisecond}
				if _, err := load.Run(context.Background(), warm, arrivals.Poisson(seeded.New(2, "warm"), 0, rate, d)); err != nil {
					b.Fatal(err)
				}
				before = usageOf(b, a)
				cfg := warm
				cfg.Duration = d
				var err error
				if r, err = load.Run(context.Background(), cfg, arrivals.Poisson(seeded.New(1, "arrivals"), 0, rate, d)); err != nil {
					b.Fatal(err)
				}
				after = usageOf(b, a)
			}
			n := after.requests - before.requests
			front, worker := after.front-before.front, after.overhead-before.overhead
			b.ReportMetric((front+worker)/n*1e6, "overhead-us/request")
			b.ReportMetric(front/n*1e6, "front-us/request")
			b.ReportMetric(worker/n*1e6, "worker-us/request")
			b.ReportMetric((after.engine-before.engine)/n*1e6, "engine-us/request")
			b.ReportMetric(n/(after.batches-before.batches), "requests/batch")
			b.ReportMetric(r.Report.Attainment, "attainment")
		})
	}
}

// BenchmarkOverheadBusy is BenchmarkOverhead with 32 requests always open: as
// many as the server takes. With 1, every request goes its way alone, in a batch of
// its own.
func BenchmarkOverheadBusy(b *testing.B) { overheadOf(b, 8, 32) }

// BenchmarkOverheadAlone: see BenchmarkOverheadBusy.
func BenchmarkOverheadAlone(b *testing.B) { overheadOf(b, 1, 1) }

func overheadOf(b *testing.B, batch, open int) {
	withORT(b)
	dir := mlp(b)
	a := apart(b, onnxPlan(b, filepath.Join(dir, "mlp.onnx"), 20*time.Microsecond, batch, time.Second), dir)
	for _, c := range callers(b, a, "mlp", 1, 784) {
		b.Run(c.protocol, func(b *testing.B) {
			var before, after usage
			for b.Loop() {
				closedLoop(b, 300*time.Millisecond, open, c.call)
				before = usageOf(b, a)
				closedLoop(b, 3*time.Second, open, c.call)
				after = usageOf(b, a)
			}
			n := after.requests - before.requests
			front, worker := after.front-before.front, after.overhead-before.overhead
			b.ReportMetric((front+worker)/n*1e6, "overhead-us/request")
			b.ReportMetric(front/n*1e6, "front-us/request")
			b.ReportMetric(worker/n*1e6, "worker-us/request")
			b.ReportMetric(n/(after.batches-before.batches), "requests/batch")
			b.ReportMetric(n/3, "requests/s")
		})
	}
}

// caller sends the same request over and over through one protocol.
type caller struct {
	protocol string
	call     func() error
}

// callers makes clients of a model with one float32 input, through gRPC and
// through HTTP with binary tensors.
func callers(b *testing.B, a Addresses, model string, shape ...int64) []caller {
	b.Helper()
	conn, err := grpc.NewClient(a.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	client := oippb.NewGRPCInferenceServiceClient(conn)
	meta, err := client.ModelMetadata(context.Background(), &oippb.ModelMetadataRequest{Name: model})
	if err != nil {
		b.Fatal(err)
	}
	size := int64(4)
	for _, d := range shape {
		size *= d
	}
	data, name := make([]byte, size), meta.Inputs[0].Name
	rpc := &oippb.ModelInferRequest{
		ModelName: model, RawInputContents: [][]byte{data},
		Inputs: []*oippb.ModelInferRequest_InferInputTensor{{Name: name, Datatype: "FP32", Shape: shape}},
	}

	head, err := oip.EncodeRequest(nil, &oip.Request{Inputs: []oip.Tensor{{Name: name, Datatype: oip.FP32, Shape: shape, Data: data}}}, true, true)
	if err != nil {
		b.Fatal(err)
	}
	body, split := append(head, data...), strconv.Itoa(len(head))
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	b.Cleanup(web.CloseIdleConnections)
	url := "http://" + a.HTTP + "/v2/models/" + model + "/infer"
	return []caller{
		{"grpc", func() error { _, err := client.ModelInfer(context.Background(), rpc); return err }},
		{"http", func() error {
			req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Inference-Header-Content-Length", split)
			req.Header.Set("Content-Type", "application/octet-stream")
			resp, err := web.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, answer)
			}
			return err
		}},
	}
}

// BenchmarkSqueezenet is the rate of requests through a protocol, one pinned
// worker, against a bare loop over the same engine on the same CPU, taken in
// turns. Run it with -benchtime 1x on a machine that is otherwise idle.
func BenchmarkSqueezenet(b *testing.B) {
	eng := withORT(b)
	dir := squeezenet(b)
	path := filepath.Join(dir, "squeezenet.onnx")
	cpus, err := engine.CPUs()
	if err != nil {
		b.Fatal(err)
	}
	bare := bareLoop(b, eng, path, cpus[min(1, len(cpus)-1)])
	a := apart(b, onnxPlan(b, path, 6*time.Millisecond, 1, 10*time.Second), dir)
	for _, c := range callers(b, a, "squeezenet", 1, 3, 224, 224) {
		b.Run(c.protocol, func(b *testing.B) {
			const turn, turns = 1500 * time.Millisecond, 5
			var served, looped, engineCPU, bareCPU float64
			for b.Loop() {
				served, looped, engineCPU, bareCPU = 0, 0, 0, 0
				for range turns {
					n, cpu := bare(turn)
					looped += n
					bareCPU += cpu
					before := usageOf(b, a)
					served += closedLoop(b, turn, 4, c.call)
					engineCPU += usageOf(b, a).engine - before.engine
				}
			}
			b.ReportMetric(served/looped, "of-bare-loop")
			b.ReportMetric(served/(turn*turns).Seconds(), "requests/s")
			b.ReportMetric(looped/(turn*turns).Seconds(), "bare/s")
			b.ReportMetric(engineCPU/served*1e3, "engine-ms/request")
			b.ReportMetric(bareCPU/looped*1e3, "bare-ms/run")
		})
	}
}

// bareLoop returns a function that runs a model for a while on one CPU.
func bareLoop(b *testing.B, eng engine.Engine, path string, cpu int) func(time.Duration) (runs, cpuSeconds float64) {
	b.Helper()
	m, err := graph.Open(path, graph.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p, ok := eng.(interface {
		Probe(context.Context, []byte, []engine.Spec, ...graph.ProbeRun) ([]map[string]graph.Value, error)
	})
	if !ok {
		b.Fatal("engine cannot probe")
	}
	chain, err := m.Chain(context.Background(), p.Probe, graph.ChainOptions{MaxLive: 1})
	if err != nil {
		b.Fatal(err)
	}
	sub, err := chain.WholeModel().Slice(0, 1, graph.SliceOptions{})
	if err != nil {
		b.Fatal(err)
	}
	block, err := eng.Load(context.Background(), sub, engine.CPUDevice(cpu), engine.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { block.Close() })
	binding, err := block.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		b.Fatal(err)
	}
	return func(d time.Duration) (float64, float64) {
		unpin, err := engine.PinThread(cpu)
		if err != nil {
			b.Fatal(err)
		}
		defer unpin()
		begin := engine.ThreadCPU()
		n := 0.0
		for start := time.Now(); time.Since(start) < d; n++ {
			if err := binding.Run(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		return n, (engine.ThreadCPU() - begin).Seconds()
	}
}

// closedLoop keeps requests open for a while and counts the answers.
func closedLoop(b *testing.B, d time.Duration, open int, call func() error) float64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for range open {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				if time.Now().Before(end) {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(n.Load())
}

// BenchmarkInfer is what the executor itself costs per request, without a
// transport: many clients, replayed runs that take no time.
func BenchmarkInfer(b *testing.B) {
	x := open(b, onePlan(time.Microsecond, 8, 1, 20*time.Millisecond), replayOptions(false))
	begin := cputime.Used()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		req := sample(x, 1)
		for pb.Next() {
			req.Received = time.Now()
			if resp, err := x.Infer(context.Background(), req); err == nil {
				resp.Release()
			}
		}
	})
	b.ReportMetric(float64(cputime.Used()-begin)/float64(b.N), "cpu-ns/op")
	r := x.Report()
	b.ReportMetric(r.Attainment, "attainment")
}
