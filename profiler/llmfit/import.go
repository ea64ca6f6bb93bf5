package llmfit

import (
	"cmp"
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
	Models []string // models to take; if empty, all
	Engine string   // the engine to take if a file has several; if empty, the first one of an instance
	Device string   // the device kind of measurements that name none
	// TensorParallel is the number of devices of measurements that do not tell it; 0 means 1.
	TensorParallel int
	Rename         string  // new name for the only selected model
	KVTokens       int64   // capacity, as the server reported it; 0 means as in the files, or unknown
	SwapGBps       float64 // GB/s between host and device, for load times that were not measured
	// Links and Layers add all-reduces to iterations that are sums of kernels. If nil, none are added.
	Links  *llmruns.LinkSpecs
	Layers *llmruns.Layers

	Batch          int // the sequences of the one-batch profile
	Prompt, Output float64
}

// Import makes a profile of language models from others' measurements: for every model, kind of device and number of
// devices, the time of an iteration, fitted. Its notes say what was assumed and what was left out.
func Import(s *llmruns.Set, o Options) (*formats.Profile, error) {
	im := &llmImport{runs: s, options: o, profile: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}}
	im.profile.Notes = append(im.profile.Notes, s.Notes...)
	for _, key := range im.instanceKeys() {
		if err := im.add(key); err != nil {
			return nil, err
		}
	}
	if len(im.profile.LLMs) == 0 {
		return nil, im.emptyError()
	}
	if o.Links != nil && !slices.ContainsFunc(im.profile.LLMs, exchanges) {
		im.note("--link-gbps and --link-us were not used: no iteration of several GPUs is a sum of kernels")
	}
	if o.Rename != "" && len(im.profile.LLMs) > 1 {
		return nil, fmt.Errorf("%w: %d models and one name for them, %q: choose a model", profiler.ErrInput, len(im.profile.LLMs), o.Rename)
	}
	if o.Rename != "" {
		im.profile.LLMs[0].Model = o.Rename
	}
	return im.profile, im.profile.Validate()
}

// exchanges reports whether all-reduces (the exchange of data between GPUs) were added to the times of an instance
// of a model.
func exchanges(m formats.LLMProfile) bool {
	return slices.ContainsFunc(m.Instances, func(in formats.LLMInstance) bool { return in.AllReduce != "" && in.AllReduce != formats.NoAllReduce })
}

// emptyError returns the error for options that select no instance of which a profile can be made. It lists the
// models and engines in the files.
func (im *llmImport) emptyError() error {
	var models, engines []string
	withoutOptions := llmImport{runs: im.runs} // selects all instances
	for _, p := range withoutOptions.instanceKeys() {
		models, engines = append(models, p.Model), append(engines, p.Engine)
	}
	slices.Sort(models)
	slices.Sort(engines)
	return fmt.Errorf("%w: nothing that a profile could be made of among the models %s of the engines %s; %s", profiler.ErrInput,
		strings.Join(slices.Compact(models), ", "), strings.Join(slices.Compact(engines), ", "), strings.Join(im.profile.Notes, "; "))
}

// minPoints is one less than the number of measurements that a fit needs for its coefficients.
const minPoints = numTerms - 1

// llmImport is the state of an import.
type llmImport struct {
	runs         *llmruns.Set // others' measurements
	options      Options
	profile      *formats.Profile      // the result
	importedKeys []llmruns.InstanceKey // instances that the result has
}

// instanceKeys returns the instances (a model on a number of devices of a kind, with an engine) that the options
// select, in the order of the files.
func (im *llmImport) instanceKeys() []llmruns.InstanceKey {
	var out []llmruns.InstanceKey
	add := func(p llmruns.InstanceKey) {
		if len(im.options.Models) > 0 && !slices.Contains(im.options.Models, p.Model) || im.options.Engine != "" && p.Engine != im.options.Engine {
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

// note adds a note to the profile.
func (im *llmImport) note(format string, args ...any) {
	im.profile.Notes = append(im.profile.Notes, fmt.Sprintf(format, args...))
}

// add adds an instance to the profile: it fits the time of an iteration to the instance's measurements, or takes
// over what others have fitted. It leaves out an instance that another engine's files have described, and notes what
// makes the numbers doubtful.
func (im *llmImport) add(key llmruns.InstanceKey) error {
	// Complete the key, and skip an instance that another engine's files have described.
	// target is the key without the engine and with the device of the options, if the file names none.
	target := key
	if target.Engine = ""; target.Device == "" {
		target.Device = im.options.Device
	}
	target.TensorParallel = cmp.Or(key.TensorParallel, im.options.TensorParallel, 1)
	if target.Model == "" && im.options.Rename == "" {
		return fmt.Errorf("%w: the measurements of %s do not say of which model: name it (--name)", profiler.ErrInput, key.Engine)
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
	var steps []llmruns.MeasuredStep
	for _, m := range im.runs.Steps {
		if m.InstanceKey == key {
			steps = append(steps, m)
		}
	}
	exchange := im.exchange(key)
	if exchange != "" && exchange != formats.NoAllReduce {
		steps = im.options.Links.WithAllReduce(*im.options.Layers, steps)
	}
	steps = im.usableSteps(steps, name)

	// Fit them, or use coefficients that others have fitted.
	var it *formats.Iteration
	var fit *formats.IterationFit
	var err error
	if len(steps) > 0 {
		if it, fit, err = Iteration(steps); err != nil {
			im.note("%s is left out: %v", name, err)
			return nil
		}
		if !slices.ContainsFunc(steps, func(m llmruns.MeasuredStep) bool { return m.Phase != llmruns.WholeStep }) {
			im.note("%s: fitted to batches from start to end, which hardly tell the cost of a prompt's token from that of a sequence", name)
		}
		if fit.Points < minPoints {
			im.note("%s: measurements: %d, fewer than a fit has coefficients: it says little of other batches and lengths", name, fit.Points)
		}
		if maxError := max(fit.DecodeMAPE, fit.PrefillMAPE); maxError > formats.PoorFit {
			im.note("%s: the fit is %.0f %% off in the mean: what is planned with it is hardly better", name, 100*maxError)
		}
	} else if it = im.takeFitted(key, name); it == nil {
		return nil
	}

	// Add the instance.
	if exchange == formats.NoAllReduce {
		im.note("%s: WITHOUT ITS ALL-REDUCES: the iterations are sums of kernels of one GPU, so they are too short; --link-gbps, --link-us and --model-config add them", name)
	}
	im.importedKeys = append(im.importedKeys, target)
	in := formats.LLMInstance{
		Device: target.Device, TensorParallel: target.TensorParallel, Engine: key.Engine, Source: strings.Join(im.runs.Sources, ", "),
		Iteration: *it, Fit: fit, KVTokens: kv, KVSource: source, Loads: im.loads(target), SwapGBps: im.options.SwapGBps, AllReduce: exchange,
	}
	if im.options.Batch > 0 {
		in.OneBatch = OneBatch(it, steps, im.options.Batch, im.options.Prompt, im.options.Output)
	}
	im.putInstance(target, in)
	return nil
}

// exchange describes how all-reduces (the exchange of data between the GPUs of an instance in every layer) are added
// to its times. It returns "" if it has none or they were measured, and NoAllReduce if they are missing and cannot
// be added.
func (im *llmImport) exchange(key llmruns.InstanceKey) string {
	switch {
	case key.TensorParallel < 2 || !im.runs.Kernels[key]:
		return ""
	case im.options.Links == nil || im.options.Layers == nil:
		return formats.NoAllReduce
	}
	return im.options.Links.String()
}

// usableSteps returns the measured steps for the fit. Partial ones, measured without attention, are used only if
// there are no others, and a note then says so: as decoding up to 256 sequences, and above as the tokens of a
// prompt.
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

// takeFitted returns an iteration with the coefficients that others have fitted for an instance, or nil with a note
// if they cannot be used. Of coefficients of decoding it takes the ones for small batches.
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

	// Their times are in milliseconds: decoding takes A + B per token of context + C per sequence, a prompt A + B per
	// token + C per token squared. Attention has a coefficient per pair of tokens, and a prompt has half as many pairs
	// as its length squared. Where the base of decoding is larger than that of prompts, the hinge makes up for it: so
	// many tokens of a prompt cost nothing.
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

// capacity returns the KV capacity of an instance in tokens, and its source: the options, or the files. It returns 0
// if neither has it.
func (im *llmImport) capacity(key llmruns.InstanceKey) (int64, string) {
	if im.options.KVTokens > 0 {
		return im.options.KVTokens, formats.KVFromServer
	}
	if kv := im.runs.KV[llmruns.InstanceKey{Model: key.Model, TensorParallel: key.TensorParallel}]; kv > 0 {
		return kv, formats.KVMeasured
	}
	return 0, ""
}

// stockLoader is the loader that engines use for checkpoints.
const stockLoader = "safetensors"

// loads returns how long loading the model takes: cold, the median of measured loads from disk, and warm, computed
// from its bytes and the options' rate between host and device. It returns nil if neither is known. Of several
// loaders' times it takes the engines' own (stockLoader) or, without those, the first loader's.
func (im *llmImport) loads(key llmruns.InstanceKey) *formats.ModelLoads {
	l := &formats.ModelLoads{}
	var times []time.Duration
	loader := ""
	for _, m := range im.runs.Loads {
		if !strings.EqualFold(m.Model, key.Model) || m.Device != key.Device {
			continue
		}
		if m.Loader != loader {
			if loader != "" && m.Loader != stockLoader {
				continue // the times are of the first loader, or already of the engines' own
			}
			loader, times = m.Loader, nil
		}
		times = append(times, m.Elapsed)
	}

	// Describe what was measured, and what is computed.
	bytes := float64(im.runs.Weights[key.Model]) / float64(key.TensorParallel)
	var notes []string
	if len(times) > 0 {
		slices.Sort(times)
		l.ColdUS = document.Micros(times[len(times)/2])
		notes = append(notes, fmt.Sprintf("cold: median of %d loads by %s", len(times), loader))
	}
	if swap := im.options.SwapGBps; swap > 0 && bytes > 0 {
		l.WarmUS = document.Micros(time.Duration(bytes / swap)) // bytes at 1 GB/s take as many nanoseconds
		notes = append(notes, fmt.Sprintf("warm: bytes at %g GB/s, assumed", im.options.SwapGBps))
	}
	if len(notes) == 0 {
		return nil
	}
	l.Source = strings.Join(notes, "; ")
	return l
}

// putInstance adds an instance to the profile, with its model and device if these are new.
func (im *llmImport) putInstance(key llmruns.InstanceKey, instance formats.LLMInstance) {
	if !slices.ContainsFunc(im.profile.Devices, func(d formats.ProfileDevice) bool { return d.Device == key.Device }) {
		im.profile.Devices = append(im.profile.Devices, formats.ProfileDevice{Device: key.Device, Engine: "imported", Source: instance.Source})
	}
	k := slices.IndexFunc(im.profile.LLMs, func(m formats.LLMProfile) bool { return m.Model == key.Model })
	if k < 0 {
		k = len(im.profile.LLMs)
		im.profile.LLMs = append(im.profile.LLMs, formats.LLMProfile{Model: key.Model, WeightBytes: im.runs.Weights[key.Model], KVBytesPerToken: im.runs.KVBytes[key.Model]})
	}
	im.profile.LLMs[k].Instances = append(im.profile.LLMs[k].Instances, instance)
}
