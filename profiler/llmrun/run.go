package llmrun

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
	"inferplan/profiler/llmfit"
	"inferplan/sim/llm"
)

// Run is a run of a real server, with the model of that server.
type Run struct {
	Name     string
	Meta     llmruns.Meta
	Device   string // the steps' name of the device
	Fit      formats.IterationFit
	Model    llm.Model
	Options  llm.Options
	Requests []llmruns.ServedRequest
	// AllReduce says which all-reduce times were assumed. It is empty if they were measured, or if there are none.
	AllReduce string
}

// New makes a run of a server from its parts: measured steps of models (from which it fits the time of an iteration,
// for the server's model and number of GPUs), the server's limits and facts (meta), and the requests that it served.
// It refuses a server of several copies.
func New(name string, steps []llmruns.MeasuredStep, meta *llmruns.Meta, requests []llmruns.ServedRequest) (*Run, error) {
	if meta.DataParallel > 1 {
		return nil, fmt.Errorf("%w: %s ran as %d copies, and which request went where is not recorded", profiler.ErrInput, name, meta.DataParallel)
	}
	runSteps := stepsOf(steps, meta)
	if len(runSteps) == 0 {
		return nil, fmt.Errorf("%w: no measured steps of %s on %d x %q", profiler.ErrInput, meta.Model, meta.TensorParallel, meta.Device)
	}
	it, fit, err := llmfit.Iteration(runSteps)
	if err != nil {
		return nil, fmt.Errorf("fitting %s: %w", name, err)
	}
	for i, r := range requests {
		if int64(r.Prompt+r.Output) > meta.KVTokens {
			return nil, fmt.Errorf("%w: request %d of %s has %d tokens, the server holds %d", profiler.ErrInput, i, name, r.Prompt+r.Output, meta.KVTokens)
		}
	}
	return &Run{
		Name: name, Meta: *meta, Device: runSteps[0].Device, Fit: *fit, Requests: requests,
		Model:   llm.Model{Iteration: *it, KVTokens: meta.KVTokens, MaxSequences: int32(meta.Sequences)},
		Options: llm.Options{TokenBudget: int32(meta.Budget), BlockTokens: int32(meta.Block), PrefixCache: meta.Prefix},
	}, nil
}

// stepsOf selects the measured steps of the server's model, at its number of GPUs, on its kind of device. The
// driver's name of a kind ("NVIDIA A100-SXM4-80GB") contains the name in tables of steps ("A100-SXM4"). If the steps
// have only one kind, that is it.
func stepsOf(steps []llmruns.MeasuredStep, meta *llmruns.Meta) []llmruns.MeasuredStep {
	compact := func(device string) string { return strings.ReplaceAll(device, "-", "") }
	kinds := map[string][]llmruns.MeasuredStep{}
	for _, m := range steps {
		if m.Model == meta.Model && m.TensorParallel == meta.TensorParallel {
			kinds[m.Device] = append(kinds[m.Device], m)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if len(kinds) == 1 || strings.Contains(compact(meta.Device), compact(kind)) {
			return kinds[kind]
		}
	}
	return nil
}

// Exchange describes the data that the GPUs of an instance exchange, and their links.
type Exchange struct {
	Links  llmruns.LinkSpecs
	Layers llmruns.Layers
}

// Open reads a run of a server from its three files: measured steps of models, the server's facts (meta) and the
// requests that it served. If the steps of a model on several GPUs are sums of the times of one GPU's kernels, the
// all-reduces (the exchange of data between the GPUs) that exchange describes are added, unless it is nil. kvTokens
// above 0 replaces the capacity that the server reported.
func Open(steps, meta, requests string, kvTokens int64, exchange *Exchange) (*Run, error) {
	var set llmruns.Set
	if err := readFile(steps, func(f io.Reader) error { return set.Read(f, steps) }); err != nil {
		return nil, err
	}
	var m *llmruns.Meta
	if err := readFile(meta, func(f io.Reader) (err error) { m, err = llmruns.ReadMeta(f, meta, kvTokens); return err }); err != nil {
		return nil, err
	}
	withoutAllReduce := m.TensorParallel > 1 && slices.ContainsFunc(stepsOf(set.Steps, m), func(x llmruns.MeasuredStep) bool { return set.Kernels[x.InstanceKey] })
	if withoutAllReduce && exchange != nil {
		set.Steps = exchange.Links.WithAllReduce(exchange.Layers, set.Steps)
	}
	var list []llmruns.ServedRequest
	if err := readFile(requests, func(f io.Reader) (err error) { list, err = llmruns.ReadRequests(f, requests); return err }); err != nil {
		return nil, err
	}
	run, err := New(m.Model+" on "+m.Device, set.Steps, m, list)
	switch {
	case err != nil || !withoutAllReduce:
	case exchange == nil:
		run.AllReduce = formats.NoAllReduce
	default:
		run.AllReduce = exchange.Links.String()
	}
	return run, err
}

// readFile calls read with a file, or standard input (-), that it opens and closes.
func readFile(path string, read func(f io.Reader) error) error {
	f, err := document.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}

// Simulate serves the run's requests with the model of the server, and returns what happened to each request. c is
// the CPU time per iteration and sequence. A preempted request finds the remains of its own prefix, because each
// request is a session.
func (r *Run) Simulate(c CPUCost) ([]llm.Outcome, llm.Counts, error) {
	m := r.Model
	m.Iteration.CPUNS, m.Iteration.CPUSequenceNS = float64(c.Iteration), float64(c.Sequence)
	list := make([]llm.Request, len(r.Requests))
	for i, q := range r.Requests {
		list[i] = llm.Request{ArrivedAt: time.Duration(q.QueuedAt * 1e9), Prompt: int32(q.Prompt), Output: int32(q.Output), Session: int64(i + 1)}
	}
	outcomes, counts, err := llm.ServeAll(r.Options, m, list)
	if err != nil {
		return nil, counts, fmt.Errorf("simulating %s: %w", r.Name, err)
	}
	return outcomes, counts, nil
}

// Profile returns the profile of the run's server, with the doubts about it. c are its constants of CPU time;
// cpuGiven says that they were given rather than fitted to the run.
func (r *Run) Profile(c CPUCost, cpuGiven bool, x *Comparison) *formats.Profile {
	it := r.Model.Iteration
	it.CPUNS, it.CPUSequenceNS = float64(c.Iteration), float64(c.Sequence)
	fit := r.Fit
	var notes []string
	if r.AllReduce == formats.NoAllReduce {
		notes = append(notes, r.withoutAllReduce())
	}
	return &formats.Profile{
		Notes:  notes,
		Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: r.Device, Engine: "imported", EngineVersion: r.Meta.Version}}, Models: []formats.ProfileModel{},
		LLMs: []formats.LLMProfile{{Model: r.Meta.Model, Instances: []formats.LLMInstance{{
			Device: r.Device, TensorParallel: r.Meta.TensorParallel, Engine: "vllm " + r.Meta.Version, Iteration: it, Fit: &fit,
			KVTokens: r.Meta.KVTokens, KVSource: formats.KVFromServer, BlockTokens: r.Meta.Block, Sequences: r.Meta.Sequences, TokenBudget: r.Meta.Budget, AllReduce: r.AllReduce, Doubts: poorFigures(c, cpuGiven, x),
		}}}},
	}
}
