package llmfit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
)

// Options select which of others' measurements go into the profile, and supply facts that these do not contain.
type Options struct {
	Models   []string // models to take; if empty, all
	Engine   string   // the engine to take if a file has several; if empty, the first one of an instance
	Device   string   // the device kind of measurements that name none
	Rename   string   // new name for the only selected model
	KVTokens int64    // capacity, as the server reported it; 0 means as in the files, or unknown
	SwapGBps float64  // GB/s between host and device, for load times that were not measured
	// Links and Layers add all-reduces to iterations that are sums of kernels. If nil, none are added.
	Links  *llmruns.LinkSpecs
	Layers *llmruns.Layers

	Batch          int // the sequences of the one-batch profile
	Prompt, Output float64
}

// Import makes a profile of others' measurements. Its notes say what was assumed and what was left out.
func Import(s *llmruns.Set, o Options) (*formats.Profile, error) {
	im := &llmImport{runs: s, opt: o, p: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}}
	for _, key := range im.instanceKeys() {
		if err := im.add(key); err != nil {
			return nil, err
		}
	}
	if len(im.p.LLMs) == 0 {
		return nil, im.emptyError()
	}
	if o.Links != nil && !slices.ContainsFunc(im.p.LLMs, exchanges) {
		im.note("--link-gbps and --link-us were not used: no iteration of several GPUs is a sum of kernels")
	}
	if o.Rename != "" && len(im.p.LLMs) > 1 {
		return nil, fmt.Errorf("%w: %d models and one name for them, %q: choose a model", profiler.ErrInput, len(im.p.LLMs), o.Rename)
	}
	if o.Rename != "" {
		im.p.LLMs[0].Model = o.Rename
	}
	return im.p, im.p.Validate()
}

// exchanges reports whether all-reduces were added to iterations of a model.
func exchanges(m formats.LLMProfile) bool {
	return slices.ContainsFunc(m.Instances, func(in formats.LLMInstance) bool { return in.AllReduce != "" && in.AllReduce != formats.NoAllReduce })
}

// emptyError returns the error for an empty selection, which lists what the files have.
func (im *llmImport) emptyError() error {
	var models, engines []string
	copyOfImport := llmImport{runs: im.runs}
	for _, p := range copyOfImport.instanceKeys() {
		models, engines = append(models, p.Model), append(engines, p.Engine)
	}
	slices.Sort(models)
	slices.Sort(engines)
	return fmt.Errorf("%w: nothing that a profile could be made of among the models %s of the engines %s; %s", profiler.ErrInput,
		strings.Join(slices.Compact(models), ", "), strings.Join(slices.Compact(engines), ", "), strings.Join(im.p.Notes, "; "))
}

// few is one less than the number of measurements that a fit needs for its coefficients.
const few = numCoefficients - 1

type llmImport struct {
	runs         *llmruns.Set
	opt          Options
	p            *formats.Profile
	importedKeys []llmruns.InstanceKey
}

// instanceKeys returns the selected instances, in the order of the files.
func (im *llmImport) instanceKeys() []llmruns.InstanceKey {
	var out []llmruns.InstanceKey
	add := func(p llmruns.InstanceKey) {
		if len(im.opt.Models) > 0 && !slices.Contains(im.opt.Models, p.Model) || im.opt.Engine != "" && p.Engine != im.opt.Engine {
			return
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for i := range im.runs.Steps {
		add(im.runs.Steps[i].InstanceKey)
	}
	for i := range im.runs.FittedSteps {
		add(im.runs.FittedSteps[i].InstanceKey)
	}
	return out
}

func (im *llmImport) note(format string, args ...any) {
	im.p.Notes = append(im.p.Notes, fmt.Sprintf(format, args...))
}

// stepsOf returns the usable measurements of an instance, with all-reduces.
func (im *llmImport) stepsOf(key llmruns.InstanceKey, exchange, name string) []llmruns.MeasuredStep {
	var steps []llmruns.MeasuredStep
	for _, m := range im.runs.Steps {
		if m.InstanceKey == key {
			steps = append(steps, m)
		}
	}
	if exchange != "" && exchange != formats.NoAllReduce {
		steps = im.opt.Links.WithAllReduce(*im.opt.Layers, steps)
	}
	return im.usableSteps(steps, name)
}

// fitSteps fits the measurements of an instance, and notes what makes the fit doubtful. If there is no fit, it returns
// nil, with a note.
func (im *llmImport) fitSteps(steps []llmruns.MeasuredStep, name string) (*formats.Iteration, *formats.IterationFit) {
	it, fit, err := Iteration(steps)
	if err != nil {
		im.note("%s is left out: %v", name, err)
		return nil, nil
	}
	if !slices.ContainsFunc(steps, func(m llmruns.MeasuredStep) bool { return m.Phase != llmruns.WholeStep }) {
		im.note("%s: fitted to batches from start to end, which hardly tell the cost of a prompt's token from that of a sequence", name)
	}
	if fit.Points < few {
		im.note("%s: measurements: %d, fewer than a fit has coefficients: it says little of other batches and lengths", name, fit.Points)
	}
	if maxError := max(fit.DecodeMAPE, fit.PrefillMAPE); maxError > formats.PoorFit {
		im.note("%s: the fit is %.0f %% off in the mean: what is planned with it is hardly better", name, 100*maxError)
	}
	return it, fit
}

// add adds the costs of an instance, unless those of another engine are there already.
func (im *llmImport) add(key llmruns.InstanceKey) error {
	// Complete the key, and skip an instance that another engine's files have described.
	target := key
	if target.Engine = ""; target.Device == "" {
		target.Device = im.opt.Device
	}
	if target.Device == "" {
		return fmt.Errorf("%w: the measurements of %s do not say on which device: name its kind", profiler.ErrInput, key.Model)
	}
	if slices.Contains(im.importedKeys, target) {
		return nil
	}

	// Collect the measurements, with all-reduces.
	name := fmt.Sprintf("%s on %d x %s", target.Model, target.TensorParallel, target.Device)
	kv, source := im.capacity(target)
	exchange := im.exchange(key)
	steps := im.stepsOf(key, exchange, name)

	// Fit them, or use coefficients that others have fitted.
	var it *formats.Iteration
	var fit *formats.IterationFit
	if len(steps) > 0 {
		it, fit = im.fitSteps(steps, name)
	} else {
		it = im.takeFitted(key, name)
	}
	if it == nil {
		return nil
	}

	// Add the instance.
	if exchange == formats.NoAllReduce {
		im.note("%s: WITHOUT ITS ALL-REDUCES: the iterations are sums of kernels of one GPU, so they are too short; --link-gbps, --link-us and --model-config add them", name)
	}
	im.importedKeys = append(im.importedKeys, target)
	in := formats.LLMInstance{
		Device: target.Device, TensorParallel: target.TensorParallel, Engine: key.Engine, Source: strings.Join(im.runs.Sources, ", "),
		Iteration: *it, Fit: fit, KVTokens: kv, KVSource: source, Loads: im.loads(target), SwapGBps: im.opt.SwapGBps, AllReduce: exchange,
	}
	if im.opt.Batch > 0 {
		in.OneBatch = OneBatch(it, steps, im.opt.Batch, im.opt.Prompt, im.opt.Output)
	}
	im.putInstance(target, in)
	return nil
}

// exchange describes the all-reduces of an instance, or returns "" if it has none or they were measured.
func (im *llmImport) exchange(key llmruns.InstanceKey) string {
	switch {
	case key.TensorParallel < 2 || !im.runs.Kernels[key]:
		return ""
	case im.opt.Links == nil || im.opt.Layers == nil:
		return formats.NoAllReduce
	}
	return im.opt.Links.String()
}

// usableSteps returns the measurements for the fit. Iterations that were measured without attention are used only
// if there are no others, and a note then says so.
func (im *llmImport) usableSteps(list []llmruns.MeasuredStep, name string) (out []llmruns.MeasuredStep) {
	partial := len(list) > 0 && !slices.ContainsFunc(list, func(m llmruns.MeasuredStep) bool { return m.Phase != llmruns.Partial })
	for _, m := range list {
		switch {
		case m.Phase == llmruns.Partial && !partial:
			continue
		case m.Phase == llmruns.Partial && m.Batch <= 256:
			m.Phase = llmruns.Decode
		case m.Phase == llmruns.Partial:
			m.Phase, m.Tokens, m.Batch = llmruns.Prefill, m.Batch, 1
		}
		out = append(out, m)
	}
	if partial {
		im.note("%s: a lower bound: attention, output layer and CPU were not measured", name)
	}
	return out
}

// takeFitted uses coefficients that others fitted, of those the ones for small batches.
func (im *llmImport) takeFitted(key llmruns.InstanceKey, name string) *formats.Iteration {
	var prefill, decode *llmruns.FittedSteps
	for i := range im.runs.FittedSteps {
		f := &im.runs.FittedSteps[i]
		switch {
		case f.InstanceKey != key:
		case !f.Decode:
			prefill = f
		case f.SmallOnly || decode == nil:
			decode = f
		}
	}
	if prefill == nil || decode == nil {
		im.note("%s is left out: its coefficients are of one phase alone", name)
		return nil
	}
	ns := func(ms float64) float64 { return digits(max(0, ms) * 1e6) }
	it := &formats.Iteration{BaseNS: ns(decode.A), SequenceNS: ns(decode.C), ContextNS: ns(decode.B), PromptNS: ns(prefill.B), AttentionNS: ns(2 * prefill.C)}
	if prefill.B > 0 {
		it.HingeTokens = math.Round(max(0, (decode.A-prefill.A)/prefill.B))
	}
	if it.BaseNS == 0 {
		im.note("%s is left out: an iteration would take no time", name)
		return nil
	}
	im.note("%s: as its authors fitted it; decoding is that of batches below %d", name, decode.Threshold)
	return it
}

// capacity returns the KV capacity and its source.
func (im *llmImport) capacity(key llmruns.InstanceKey) (int64, string) {
	if im.opt.KVTokens > 0 {
		return im.opt.KVTokens, formats.KVFromServer
	}
	if kv := im.runs.KV[llmruns.InstanceKey{Model: key.Model, TensorParallel: key.TensorParallel}]; kv > 0 {
		return kv, formats.KVMeasured
	}
	return 0, ""
}

// stockLoader is the loader that engines use for checkpoints.
const stockLoader = "safetensors"

// loads returns load times: measured ones from disk, else computed from bytes and a rate.
func (im *llmImport) loads(key llmruns.InstanceKey) *formats.ModelLoads {
	l := &formats.ModelLoads{}
	var times []time.Duration
	loader := ""
	for _, m := range im.runs.Loads { // use one loader: the engines' own, if it was measured
		if !strings.EqualFold(m.Model, key.Model) || m.Device != key.Device || loader == stockLoader && m.Loader != loader {
			continue
		}
		if m.Loader != loader {
			if loader != "" && m.Loader != stockLoader {
				continue
			}
			loader, times = m.Loader, nil
		}
		times = append(times, m.Elapsed)
	}
	bytes := float64(im.runs.Weights[key.Model]) / float64(key.TensorParallel)
	var notes []string
	if len(times) > 0 {
		slices.Sort(times)
		l.ColdUS = document.Micros(times[len(times)/2])
		notes = append(notes, fmt.Sprintf("cold: median of %d loads by %s", len(times), loader))
	}
	if swap := im.opt.SwapGBps; swap > 0 && bytes > 0 {
		l.WarmUS = document.Micros(time.Duration(bytes / swap))
		notes = append(notes, fmt.Sprintf("warm: bytes at %g GB/s, assumed", im.opt.SwapGBps))
	}
	if len(notes) == 0 {
		return nil
	}
	l.Source = strings.Join(notes, "; ")
	return l
}

// putInstance adds an instance to the profile.
func (im *llmImport) putInstance(key llmruns.InstanceKey, in formats.LLMInstance) {
	if !slices.ContainsFunc(im.p.Devices, func(d formats.ProfileDevice) bool { return d.Device == key.Device }) {
		im.p.Devices = append(im.p.Devices, formats.ProfileDevice{Device: key.Device, Engine: "imported", Source: in.Source})
	}
	k := slices.IndexFunc(im.p.LLMs, func(m formats.LLMProfile) bool { return m.Model == key.Model })
	if k < 0 {
		k = len(im.p.LLMs)
		im.p.LLMs = append(im.p.LLMs, formats.LLMProfile{Model: key.Model, WeightBytes: im.runs.Weights[key.Model], KVBytesPerToken: im.runs.KVBytes[key.Model]})
	}
	im.p.LLMs[k].Instances = append(im.p.LLMs[k].Instances, in)
}
