package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/formats/document"
	"inferplan/formats/outcomes"
)

// bench holds the flags.
type bench struct {
	plan, library, models string
	load                  float64
	slo, phase, budget    time.Duration
}

func main() {
	b := &bench{}
	instrument.Main(&instrument.Instrument{
		Name: "pods", Strict: true,
		Parts: []instrument.Part{b.part("http", "HTTP"), b.part("grpc", "gRPC")},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.plan, "plan", "bin/plan", "the program")
			f.StringVar(&b.library, "library", os.Getenv("INFERPLAN_ORT_LIB"), "ONNX Runtime")
			f.StringVar(&b.models, "models", "squeezenet,shufflenet", "models, as plan models write knows them")
			f.DurationVar(&b.slo, "slo", 5*time.Second, "SLO of the models")
			f.Float64Var(&b.load, "load", .2, "share of the planned rate of a copy that is asked")
			f.DurationVar(&b.phase, "phase", 10*time.Second, "how long each phase lasts at least")
			f.DurationVar(&b.budget, "budget", 30*time.Second, "for measuring the models")
		},
		Begin: func(*instrument.Run) (err error) {
			if os.Geteuid() != 0 {
				return errors.New("network namespaces need root")
			}
			b.plan, err = filepath.Abs(b.plan)
			return err
		},
	})
}

// part returns the part whose clients use a protocol: the name of a port of the Service.
func (b *bench) part(port, protocol string) instrument.Part {
	return instrument.Part{Name: port, Title: "Exported manifests, played in a network namespace a pod, clients of " + protocol,
		Columns: []string{"after", "s", "requests", "answered", "late", "refused or lost"},
		Measure: func(r *instrument.Run, t *instrument.Table) error { return b.measure(r, t, port, protocol) }}
}

// phase is a part of the run with its own event, from the moment of the event on.
type phase struct {
	name    string
	seconds float64        // since the first request
	refused map[string]int // by reason

	answered, late, dropped int
}

// play is a run: pods under load, and what happens to them.
type play struct {
	*bench
	*cluster
	ctx     context.Context
	port    string // of the Service
	program served.Program
	began   time.Time
	phases  []*phase
	ended   float64 // seconds from the first request to the last that counts
	token   string
}

// measure plays the pods of a plan, and states what became of requests.
func (b *bench) measure(r *instrument.Run, t *instrument.Table, port, protocol string) error {
	dir, err := os.MkdirTemp("", "bench-pods-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(r.Ctx)
	p := &play{bench: b, ctx: ctx, port: port, program: served.Program{Path: b.plan, Folder: dir}, cluster: &cluster{
		dir: filepath.Join(dir, "k8s"), scratch: filepath.Join(dir, "pods"), image: filepath.Join(dir, "image"), models: filepath.Join(dir, "models"),
		secrets: map[string]map[string][]byte{}, config: map[string]string{}, log: r.Log,
	}}
	defer closeNodes()
	defer p.killAll()
	defer stop()
	if err := p.prepare(dir); err != nil {
		return err
	}
	back, switched, err := p.serve(dir)
	if err != nil {
		return errors.Join(err, p.tails())
	}
	return p.state(r, t, protocol, back, switched)
}

// prepare makes the image's files, two plans, the exported folder, the nodes and the pods, and waits until all servers are
// ready.
func (p *play) prepare(dir string) error {
	if err := os.MkdirAll(p.image, 0o755); err != nil {
		return err
	}
	if err := errors.Join(run("cp", p.plan, filepath.Join(p.image, "plan")), run("cp", "-L", p.library, filepath.Join(p.image, "libonnxruntime.so.1"))); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte("format: inferplan.cluster/v1\npools:\n- {device: cpu-1, count: 2, per_node: 1}\n"), 0o644); err != nil {
		return err
	}
	for _, step := range [][]string{
		append([]string{"models", "write", "--dir", "models", "-q"}, strings.Split(p.bench.models, ",")...),
		{"profile", "--batches", "1,2,4", "--blocks", "4", "--budget", p.budget.String(), "-q"},
		{"solve", "--slo", p.slo.String(), "--cluster", "cluster.yaml", "-q"},
		{"solve", "--slo", p.slo.String(), "--cluster", "cluster.yaml", "-q", "--max-batch", "1", "-o", "next.json"},
		p.export("plan.json"),
	} {
		if err := p.program.Run(p.ctx, step...); err != nil {
			return err
		}
	}
	if err := errors.Join(p.read(), openNodes(), p.addPods()); err != nil {
		return err
	}
	for _, d := range p.pods {
		if err := d.run(p.ctx); err != nil {
			return err
		}
	}
	return p.await("servers that are ready", time.Minute, func() bool {
		for _, d := range p.serversOf(p.service()) {
			if !d.ready.Load() {
				return false
			}
		}
		return true
	})
}

// export returns the command that exports a plan.
func (p *play) export(plan string) []string {
	return []string{"export", "kubernetes", plan, "-o", "k8s", "--copies", "2", "--drain", "10s", "--drain-delay", "4s"}
}

// await waits until something is so, and returns an error if it is not in time.
func (p *play) await(what string, limit time.Duration, is func() bool) error {
	for began := time.Now(); !is(); time.Sleep(100 * time.Millisecond) {
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		if time.Since(began) > limit {
			return fmt.Errorf("no %s within %s", what, limit)
		}
	}
	return nil
}

// begin begins a phase.
func (p *play) begin(name string) {
	fmt.Fprintf(p.log, "%s\n", name)
	p.phases = append(p.phases, &phase{name: name, seconds: time.Since(p.began).Seconds(), refused: map[string]int{}})
}

// serve drives the Service while things happen to the pods. It returns the time until a killed pod's device worked again,
// and until another plan was in force everywhere.
func (p *play) serve(dir string) (back, switched time.Duration, err error) {
	token := p.secrets[p.service().Name+"-client"]["token"]
	if err := os.WriteFile(filepath.Join(dir, "token"), token, 0o600); err != nil {
		return 0, 0, err
	}
	p.token = string(bytes.TrimSpace(token))
	address, err := p.forward(p.ctx, p.port)
	if err != nil {
		return 0, 0, err
	}
	client := exec.CommandContext(p.ctx, p.plan, "load", p.port+"://"+address, "--load", fmt.Sprint(p.load), "--duration", "1h", "--token-file", "token", "--outcomes", "outcomes.csv", "-o", "load.json", "-q")
	client.Dir = dir
	var said bytes.Buffer
	client.Stderr = &said
	if err := client.Start(); err != nil {
		return 0, 0, err
	}
	p.began = time.Now()
	back, switched, err = p.happen()
	p.ended = time.Since(p.began).Seconds()
	_ = client.Process.Signal(syscall.SIGINT)
	if e := client.Wait(); e != nil {
		if exit := (&exec.ExitError{}); !errors.As(e, &exit) || exit.ExitCode() != 4 {
			err = errors.Join(err, fmt.Errorf("plan load: %w: %s", e, &said))
		}
	}
	return back, switched, errors.Join(err, p.count(dir))
}

// happen kills a worker's pod, applies another plan, and replaces all servers.
func (p *play) happen() (back, switched time.Duration, err error) {
	servers := p.serversOf(p.service())
	_, workers, err := servers[0].state(p.ctx, p.token)
	if err != nil {
		return 0, 0, err
	}
	p.begin("start")
	time.Sleep(p.phase)

	// Kill the pod of a worker of the first server.
	p.begin("a worker's pod killed")
	began := time.Now()
	victim := p.pods[len(p.pods)-1]
	for _, d := range p.pods {
		if !d.has(servers[0].labels) && strings.HasSuffix(d.name, "-0") {
			victim = d
		}
	}
	victim.signal(syscall.SIGKILL)
	up := func(want int) func() bool {
		return func() bool {
			_, n, err := servers[0].state(p.ctx, p.token)
			return err == nil && n == want
		}
	}
	if err := errors.Join(p.await("lost worker", 20*time.Second, up(workers-1)), p.await("worker that is back", time.Minute, up(workers))); err != nil {
		return 0, 0, err
	}
	back = time.Since(began)
	time.Sleep(max(0, p.phase-back))

	// Export another plan, and put its ConfigMap into the pods.
	p.begin("another plan applied")
	began = time.Now()
	if err := p.apply("next.json"); err != nil {
		return 0, 0, err
	}
	hash, err := document.Digest(filepath.Join(p.dir, "base/plan.json"))
	if err != nil {
		return 0, 0, err
	}
	for _, d := range servers {
		if err := p.await(d.name+" with another plan", time.Minute, func() bool {
			inForce, _, err := d.state(p.ctx, p.token)
			return err == nil && inForce == hash
		}); err != nil {
			return 0, 0, err
		}
	}
	switched = time.Since(began)
	time.Sleep(max(0, p.phase-switched))

	// Replace all servers, the last one first, each when the one before is ready.
	p.begin("servers replaced")
	for i := len(servers) - 1; i >= 0; i-- {
		d := servers[i]
		if err := errors.Join(d.remove(), d.run(p.ctx), p.await(d.name+" that is ready", time.Minute, d.ready.Load)); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(p.phase)

	// Take the last copy away: its server and its workers at once. What workers run before their end outlasts the server.
	p.begin("a copy removed")
	last := servers[len(servers)-1]
	for _, d := range p.pods {
		if d != last && d.copy() == last.copy() {
			go func() { _ = d.remove() }() // this takes longer than the program runs
		}
	}
	if err := last.remove(); err != nil {
		return 0, 0, err
	}
	time.Sleep(p.phase)
	return back, switched, nil
}

// apply exports a plan into the folder again and puts the ConfigMap into the pods that mount it, as kubelet does. What else
// has changed in the folder is an error: pods would have to restart.
func (p *play) apply(plan string) error {
	before, err := p.texts()
	if err != nil {
		return err
	}
	if err := p.program.Run(p.ctx, p.export(plan)...); err != nil {
		return err
	}
	after, err := p.texts()
	if err != nil {
		return err
	}
	for path, text := range after {
		if before[path] != text && filepath.Base(path) != "plan.json" {
			return fmt.Errorf("%s is another one with another plan", path)
		}
	}
	for _, d := range p.pods {
		for i := range d.spec.Volumes {
			if v := &d.spec.Volumes[i]; v.ConfigMap != nil {
				if _, _, err := d.makeVolume(v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// texts returns the files of the base.
func (p *play) texts() (map[string]string, error) {
	texts := map[string]string{}
	return texts, filepath.WalkDir(filepath.Join(p.dir, "base"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		texts[path] = string(data)
		return err
	})
}

// count counts the outcomes of requests by phase, from the file that plan load wrote.
func (p *play) count(dir string) error {
	list, err := outcomes.ReadFile(filepath.Join(dir, "outcomes.csv"))
	if err != nil {
		return err
	}
	for _, o := range list {
		due := o.Due.Seconds()
		if due > p.ended-p.slo.Seconds() {
			continue // the client may have stopped before the answer
		}
		at := p.phases[0]
		for _, x := range p.phases {
			if x.seconds <= due {
				at = x
			}
		}
		switch {
		case o.Reason != "":
			at.dropped++
			at.refused[o.Reason]++
		case o.Late:
			at.late++
			at.answered++
		default:
			at.answered++
		}
	}
	return nil
}

// state states the figures and fills the table.
func (p *play) state(r *instrument.Run, t *instrument.Table, protocol string, back, switched time.Duration) error {
	const source = "own"
	restarts := int64(0)
	for _, d := range p.pods {
		restarts += d.restarts.Load()
	}
	for i, x := range p.phases {
		to := p.ended
		if i+1 < len(p.phases) {
			to = p.phases[i+1].seconds
		}
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(x.refused)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", x.refused[reason], reason))
		}
		t.Add(x.name, fmt.Sprintf("%.0f", to-x.seconds), x.answered+x.dropped, x.answered, x.late, strings.Join(reasons, ", "))
		f := r.Exactly(protocol+", "+x.name+": requests that were refused or lost", source, 0, "", float64(x.dropped))
		f.Note = fmt.Sprintf("of %d, in %.0f s%s", x.answered+x.dropped, to-x.seconds, strings.Join(append([]string{""}, reasons...), ", "))
		switch i {
		case 1:
			f.Note += fmt.Sprintf("; its device worked again after %.1f s", back.Seconds())
			f.Asked, f.Holds = figures.AskedShown, ""
		case 2:
			f.Note += fmt.Sprintf("; in force in all servers after %.1f s, no pod restarted", switched.Seconds())
		}
	}
	r.Exactly(protocol+", pods that were restarted, beside the one that was killed", source, 0, "", float64(restarts-1))
	return nil
}

// killAll ends all pods.
func (p *play) killAll() {
	for _, d := range p.pods {
		d.mu.Lock()
		d.leaving = true
		if d.beforeEnd != nil {
			_ = d.beforeEnd.Kill()
		}
		d.mu.Unlock()
		d.signal(syscall.SIGKILL)
		if d.ended != nil {
			<-d.ended
		}
	}
}

// tails returns an error with the last lines that each pod wrote.
func (p *play) tails() error {
	var errs []error
	for _, d := range p.pods {
		data, err := os.ReadFile(filepath.Join(p.scratch, d.name+".log"))
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		errs = append(errs, err, fmt.Errorf("%s:\n%s", d.name, strings.Join(lines[max(0, len(lines)-8):], "\n")))
	}
	return errors.Join(errs...)
}
