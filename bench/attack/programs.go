package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/figures"
	"inferplan/formats/seeded"
)

// hung is when a run of the program counts as one that never ends: other work on the
// machine counts here, and not in the CPU time that a verb may take.
const hung = 2 * time.Minute

// What verbs may take of CPU time: those that solve, and all others.
const (
	mostSolving = 20 * time.Second
	mostOther   = 5 * time.Second
)

// allowed is the CPU time that a use of the program may take. A check solves, too, unless
// told not to.
func allowed(use []string) time.Duration {
	if len(use) > 0 && (use[0] == "solve" || use[0] == "check" && !slices.Contains(use, "--no-solve")) {
		return mostSolving
	}
	return mostOther
}

// ending is how a run of the program ended.
type ending struct {
	code      int // negative: by a signal
	cpu, wall time.Duration
	memory    int64
	said, out string // stderr and stdout
}

// fault says what is wrong with an ending of hostile input. If nothing is wrong, it is empty. Go ends
// a program that panics with the code of bad input, so what it said counts, too.
func (e *ending) fault(allowed time.Duration) string {
	switch {
	case e.wall >= hung:
		return "does not end"
	case e.code < 0:
		return "killed"
	case strings.Contains(e.said, "panic:") || strings.Contains(e.said, "fatal error:") || strings.Contains(e.said, "goroutine "):
		return "panics"
	case e.code == 5:
		return "exit code 5"
	case e.cpu > allowed && e.code == 0:
		return tookLong // it did what the file asks for, such as measuring a large model
	case e.cpu > allowed:
		return fmt.Sprintf("over %v", allowed)
	case e.memory > serverMemory:
		return "over 1 GiB"
	}
	return ""
}

const tookLong = "over its CPU time, for good input with exit code 0"

// call runs the program once.
func (t *target) call(ctx context.Context, dir string, args ...string) *ending {
	ctx, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.plan, args...)
	cmd.Dir = dir
	var said, out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &out
	began := time.Now()
	if args[0] == "serve" {
		cmd.Stderr = &stopping{&said, cmd}
	}
	err := cmd.Start()
	if err == nil {
		limit(cmd.Process.Pid)
		err = cmd.Wait()
	}
	e := &ending{code: -1, wall: time.Since(began), said: said.String(), out: out.String()}
	if cmd.ProcessState == nil {
		e.said = fmt.Sprint(err)
		return e
	}
	e.code, e.cpu = cmd.ProcessState.ExitCode(), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.memory = u.Maxrss << 10
	}
	return e
}

// limit keeps a process that takes far too much from harming this machine: twice the
// CPU time of verbs that solve, and memory that nothing comes near to.
func limit(pid int) {
	const seconds, bytes = 2 * uint64(mostSolving/time.Second), 8 << 30
	_ = unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil)
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}

// stopping ends a server as soon as it says that it serves.
type stopping struct {
	said   *bytes.Buffer
	serves *exec.Cmd
}

func (s *stopping) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("serving ")) {
		_ = s.serves.Process.Signal(syscall.SIGTERM)
	}
	return s.said.Write(p)
}

// seed is a good file and what the program does with such files; FILE stands for it.
type seed struct {
	name string // ending included
	text []byte
	uses [][]string
}

// corpus holds the results of runs of the program over mutants.
type corpus struct {
	mu        sync.Mutex
	tries     int
	codes     map[int]int
	faults    map[string]int
	failed    int
	told      func(string) // hears of failures as they come
	cpu       time.Duration
	share     float64 // the largest part that a run took of its CPU time
	memory    int64
	cpuOf     string
	keptUnder string
}

// mutants makes n mutants and gives each of them to one use of its seed, two at once. One that
// takes more CPU time than its verb may is run again with nothing beside it, and that run counts.
func (a *attack) mutants(ctx context.Context, stream string, n int, seeds []seed, mutate func(m *mutator, b []byte) []byte) (*corpus, error) {
	c := &corpus{codes: map[int]int{}, faults: map[string]int{}, keptUnder: filepath.Join(os.TempDir(), "attack-failed"), told: func(text string) { a.printf("    FAILED %s\n", text) }}
	m := &mutator{Rand: seeded.New(a.seed, stream)}
	type try struct {
		text []byte
		name string
		use  []string
	}
	tries := make(chan try)
	var wg sync.WaitGroup
	var alone sync.RWMutex // runs hold it for reading; one that must have the machine for itself, for writing
	run := func(dir string, use, args []string) *ending {
		alone.RLock()
		e := a.call(ctx, dir, args...)
		alone.RUnlock()
		if e.cpu <= allowed(use) || e.wall >= hung || ctx.Err() != nil {
			return e
		}
		// A mutant beside it slows its memory accesses, which counts as its CPU time.
		os.RemoveAll(filepath.Join(dir, "out.json"))
		alone.Lock()
		defer alone.Unlock()
		return a.call(ctx, dir, args...)
	}
	for range 2 {
		dir, err := os.MkdirTemp(a.dir, stream)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			for t := range tries {
				path := filepath.Join(dir, t.name)
				if err := os.WriteFile(path, t.text, 0o600); err != nil {
					c.note(&ending{code: -1, said: err.Error()}, t.use, nil)
					continue
				}
				args := make([]string, len(t.use))
				for i, word := range t.use {
					args[i] = strings.ReplaceAll(strings.ReplaceAll(word, "FILE", path), "DIR", dir)
				}
				if e := run(dir, t.use, args); ctx.Err() == nil {
					c.note(e, t.use, t.text)
				}
				os.RemoveAll(filepath.Join(dir, "out.json"))
			}
		})
	}
	for range n {
		if ctx.Err() != nil {
			break
		}
		s := &seeds[m.IntN(len(seeds))]
		tries <- try{mutate(m, s.text), s.name, s.uses[m.IntN(len(s.uses))]}
	}
	close(tries)
	wg.Wait()
	return c, ctx.Err()
}

// broken mutates to at most so many bytes, with words of the format.
func broken(most int, words ...string) func(m *mutator, b []byte) []byte {
	return func(m *mutator, b []byte) []byte {
		m.words = words
		return m.mutate(b, most)
	}
}

// note counts an ending; inputs that failed are kept.
func (c *corpus) note(e *ending, use []string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries++
	c.codes[e.code]++
	if e.cpu > c.cpu {
		c.cpu, c.cpuOf = e.cpu, strings.Join(use, " ")
	}
	c.share = max(c.share, float64(e.cpu)/float64(allowed(use)))
	c.memory = max(c.memory, e.memory)
	f := e.fault(allowed(use))
	if f == "" {
		return
	}
	if c.faults[f]++; c.failed < 100 {
		_ = os.MkdirAll(c.keptUnder, 0o700)
		at := filepath.Join(c.keptUnder, fmt.Sprintf("%d-%s", c.tries, use[0]))
		_ = os.WriteFile(at, text, 0o600)
		c.failed++
		c.told(fmt.Sprintf("%s: plan %s (%d, CPU %v, %v, %d MiB; kept as %s): %.400s", f, strings.Join(use, " "), e.code, e.cpu.Round(time.Millisecond), e.wall.Round(time.Millisecond), e.memory>>20, at, e.said))
	}
}

func (c *corpus) figure(a *attack, claim, part string) []figures.Figure {
	bad := 0
	for _, n := range c.faults {
		bad += n
	}
	holds, quick := figures.If(bad == 0), figures.If(c.share <= 1)
	if bad > 0 && bad == c.faults[tookLong] {
		holds, quick = figures.Partly, figures.Partly
	}
	a.printf("%s: %d runs, exit codes %v, at most %v of CPU (plan %s) and %d MiB; %v\n", claim, c.tries, c.codes, c.cpu.Round(time.Millisecond), c.cpuOf, c.memory>>20, c.faults)
	return []figures.Figure{
		{Claim: claim + ": panics, exit codes 5, over 5 s of CPU (20 s where it solves) or 1 GiB", Source: source, Asked: "none", Measured: float64(bad), Unit: fmt.Sprintf("of %d", c.tries), Holds: holds, Note: reasons(c.faults)},
		{Claim: claim + ": CPU of the longest run, of what its verb may take", Source: source, Asked: "at most 1", Measured: round(c.share), Holds: quick, Note: fmt.Sprintf("%.3f s at most; most memory %d MiB", c.cpu.Seconds(), c.memory>>20)},
	}
}

func reasons(faults map[string]int) string {
	var list []string
	for _, f := range sortedKeys(faults) {
		list = append(list, fmt.Sprintf("%d %s", faults[f], f))
	}
	return strings.Join(list, ", ")
}

var documentWords = []string{
	"format", "inferplan.plan/v2", "inferplan.profile/v1", "inferplan.cluster/v1", "inferplan.workload/v1", "models", "pools", "device", "count", "slo", "weight", "batch", "infer_us", "rps", "blocks", "share",
	"replicas", "placement", "1e15", "1000000000", "100ms", "1ns", "1h", "24GiB", "5x", "L4", "cpu-1", "p99", "poisson", "gamma", "trace", "throughput",
}

// documents gives mutants of every kind of document to the verbs that read them.
func (a *attack) documents(ctx context.Context) ([]figures.Figure, error) {
	seeds, err := a.documentSeeds(ctx)
	if err != nil {
		return nil, err
	}
	c, err := a.mutants(ctx, "documents", a.count(20_000), seeds, broken(1<<20, documentWords...))
	if err != nil {
		return nil, err
	}
	return c.figure(a, "mutants of documents", "documents"), nil
}

func (a *attack) documentSeeds(ctx context.Context) (out []seed, err error) {
	plan, err := a.smallPlan(ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(plan)
	report := filepath.Join(dir, "report.json")
	if e := a.call(ctx, dir, "simulate", "plan.json", "--duration", "1s", "-o", report); e.code != 0 {
		return nil, fmt.Errorf("simulating the plan: %s", e.said)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	solve := func(which string) []string {
		args := []string{"solve", "-o", "DIR/out.json"}
		for _, k := range []string{"profile", "cluster", "workload"} {
			file := at(map[string]string{"profile": "profile.json", "cluster": "cluster.yaml", "workload": "workload.yaml"}[k])
			if k == which {
				file = "FILE"
			}
			args = append(args, "--"+k, file)
		}
		return args
	}
	uses := map[string][][]string{
		"plan": {{"explain", "FILE"}, {"simulate", "FILE", "--poisson", "100", "--duration", "1s"}, {"check", "FILE", "--no-solve", "--against", "FILE", "--profile", at("profile.json"), "--cluster", at("cluster.yaml"), "--workload", at("workload.yaml")},
			{"diff", plan, "FILE"}, {"solve", "--from", "FILE", "--profile", at("profile.json"), "--cluster", at("cluster.yaml"), "--workload", at("workload.yaml"), "-o", "DIR/out.json"}},
		"profile":  {solve("profile"), {"diff", at("profile.json"), "FILE"}},
		"cluster":  {solve("cluster")},
		"workload": {solve("workload")},
		"report":   {{"report", "FILE", report}},
		"trace":    {{"simulate", plan, "--trace", "FILE", "--duration", "1m"}, {"import", "trace", "FILE", "-o", "DIR/out.csv"}},
		"records":  {{"import", "records", "FILE", "-o", "DIR/out.json"}},
	}
	add := func(kind, path string) {
		text, rerr := os.ReadFile(path)
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("reading a seed: %w", rerr))
			return
		}
		out = append(out, seed{kind + filepath.Ext(path), text, uses[kind]})
	}
	for _, own := range [][2]string{{"plan", plan}, {"profile", at("profile.json")}, {"cluster", at("cluster.yaml")}, {"workload", at("workload.yaml")}, {"report", report}} {
		add(own[0], own[1])
	}
	kept, _ := filepath.Glob(filepath.Join(a.root, "testdata/compat/*"))
	for _, path := range kept {
		kind := filepath.Base(path)
		kind = kind[:strings.IndexAny(kind, ".-")]
		if uses[kind] != nil {
			add(kind, path)
		}
	}
	out = append(out,
		seed{"records.csv", []byte("sample_id,model,correct,certainty\n0,a,1,0.9\n0,b,1,0.8\n1,a,0,0.3\n1,b,1,0.7\n2,a,1,0.6\n2,b,0,0.5\n"), uses["records"]},
		seed{"workload.yaml", []byte("format: inferplan.workload/v1\nmodels:\n- {model: m, class: fast, slo: 100ms, weight: 0.5}\n- {model: m, class: batch, slo: 1s, percentile: p95, weight: 0.3}\n- {model: words, slo: 4x, weight: 0.2, min_rps: 1}\narrivals: {process: gamma, cv: 2}\n"), uses["workload"]},
		seed{"cluster.yaml", []byte("format: inferplan.cluster/v1\npools:\n- {device: L4, count: 25, max_shares: 4, per_node: 1, nic_gbps: 6, memory: 24GiB, usd_per_hour: 0.71, watts: 72}\n"), uses["cluster"]},
	)
	return out, err
}

// onnx gives mutants of model files to `plan profile`.
func (a *attack) onnx(ctx context.Context) ([]figures.Figure, error) {
	dir := filepath.Join(a.dir, "models")
	names := []string{"mlp-16", "mlp-64"}
	if e := a.call(ctx, a.dir, append([]string{"models", "write", "--dir", dir}, names...)...); e.code != 0 {
		return nil, fmt.Errorf("writing models: %s", e.said)
	}
	use := [][]string{{"profile", "FILE", "--budget", "100ms", "--batches", "1", "--blocks", "2", "--device", "cpu", "-o", "DIR/out.json"}}
	var seeds []seed
	fetched := filepath.Join(a.root, "third_party/models/files")
	paths := []string{filepath.Join(fetched, "light_squeezenet.onnx"), filepath.Join(fetched, "light_shufflenet.onnx")}
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name+".onnx"))
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a seed: %w", err)
		}
		seeds = append(seeds, seed{"m.onnx", text, use})
	}
	c, err := a.mutants(ctx, "onnx", a.count(5_000), seeds, broken(4<<20, "Conv", "Relu", "Gemm", "Reshape", "Softmax", "x", "y", "ConstantOfShape", "Squeeze", "\x08\x07", "\x10\x0d", "\xff\xff\xff\xff\x0f", "\x00\x00\x00\x00"))
	if err != nil {
		return nil, err
	}
	return c.figure(a, "mutants of ONNX files through plan profile", "onnx"), nil
}
