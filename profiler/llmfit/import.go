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
	Links  *llmruns.Links
	Layers *llmruns.Layers

	Batch          int // the sequences of the one-batch profile
	Prompt, Output float64
}

// Import makes a profile of others' measurements. Its notes say what was assumed and what was left out.
func Import(s *llmruns.Set, o Options) (*formats.Profile, error) {
	im := &llmImport{set: s, opt: o, p: &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}}
	for _, place := range im.places() {
		if err := im.add(place); err != nil {
			return nil, err
		}
	}
	if len(im.p.LLMs) == 0 {
		return nil, im.nothing()
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
func (im *llmImport) nothing() error {
	var models, engines []string
	all := llmImport{set: im.set}
	for _, p := range all.places() {
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
	set  *llmruns.Set
	opt  Options
	p    *formats.Profile
	done []llmruns.Place
}

// instanceKeys returns the selected instances, in the order of the files.
func (im *llmImport) places() []llmruns.Place {
	var out []llmruns.Place
	add := func(p llmruns.Place) {
		if len(im.opt.Models) > 0 && !slices.Contains(im.opt.Models, p.Model) || im.opt.Engine != "" && p.Engine != im.opt.Engine {
			return
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for i := range im.set.Measured {
		add(im.set.Measured[i].Place)
	}
	for i := range im.set.Fitted {
		add(im.set.Fitted[i].Place)
	}
	return out
}

func (im *llmImport) note(format string, args ...any) {
	im.p.Notes = append(im.p.Notes, fmt.Sprintf(format, args...))
}

// add adds the costs of an instance, unless those of another engine are there already.
func (im *llmImport) add(place llmruns.Place) error {
	// Complete the key, and skip an instance that another engine's files have described.
	at := place
	if at.Engine = ""; at.Device == "" {
		at.Device = im.opt.Device
	}
	if at.Device == "" {
		return fmt.Errorf("%w: the measurements of %s do not say on which device: name its kind", profiler.ErrInput, place.Model)
	}
	if slices.Contains(im.done, at) {
		return nil
	}

	// Collect the measurements, with all-reduces.
	name := fmt.Sprintf("%s on %d x %s", at.Model, at.TensorParallel, at.Device)
	kv, source := im.capacity(at)
	var measured []llmruns.Measured
	for _, m := range im.set.Measured {
		if m.Place == place {
			measured = append(measured, m)
		}
	}
	exchange := im.exchange(place)
	if exchange != "" && exchange != formats.NoAllReduce {
		measured = im.opt.Links.WithAllReduce(*im.opt.Layers, measured)
	}
	measured = im.usable(measured, name)

	// Fit them, or use coefficients that others have fitted.
	var it *formats.Iteration
	var fit *formats.IterationFit
	var err error
	if len(measured) > 0 {
		if it, fit, err = Iteration(measured); err != nil {
			im.note("%s is left out: %v", name, err)
			return nil
		}
		if !slices.ContainsFunc(measured, func(m llmruns.Measured) bool { return m.Phase != llmruns.Whole }) {
			im.note("%s: fitted to batches from start to end, which hardly tell the cost of a prompt's token from that of a sequence", name)
		}
		if fit.Points < few {
			im.note("%s: measurements: %d, fewer than a fit has coefficients: it says little of other batches and lengths", name, fit.Points)
		}
		if worst := max(fit.DecodeMAPE, fit.PrefillMAPE); worst > formats.PoorFit {
			im.note("%s: the fit is %.0f %% off in the mean: what is planned with it is hardly better", name, 100*worst)
		}
	} else if it = im.fitted(place, name); it == nil {
		return nil
	}

	// Add the instance.
	if exchange == formats.NoAllReduce {
		im.note("%s: WITHOUT ITS ALL-REDUCES: the iterations are sums of kernels of one GPU, so they are too short; --link-gbps, --link-us and --model-config add them", name)
	}
	im.done = append(im.done, at)
	in := formats.LLMInstance{
		Device: at.Device, TensorParallel: at.TensorParallel, Engine: place.Engine, Source: strings.Join(im.set.Sources, ", "),
		Iteration: *it, Fit: fit, KVTokens: kv, KVSource: source, Loads: im.loads(at), SwapGBps: im.opt.SwapGBps, AllReduce: exchange,
	}
	if im.opt.Batch > 0 {
		in.OneBatch = OneBatch(it, measured, im.opt.Batch, im.opt.Prompt, im.opt.Output)
	}
	im.put(at, in)
	return nil
}

// exchange describes the all-reduces of an instance, or returns "" if it has none or they were measured.
func (im *llmImport) exchange(place llmruns.Place) string {
	switch {
	case place.TensorParallel < 2 || !im.set.Kernels[place]:
		return ""
	case im.opt.Links == nil || im.opt.Layers == nil:
		return formats.NoAllReduce
	}
	return im.opt.Links.String()
}

// usableSteps returns the measurements for the fit. Iterations that were measured without attention are used only
// if there are no others, and a note then says so.
func (im *llmImport) usable(list []llmruns.Measured, name string) (out []llmruns.Measured) {
	partial := len(list) > 0 && !slices.ContainsFunc(list, func(m llmruns.Measured) bool { return m.Phase != llmruns.Partial })
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
func (im *llmImport) fitted(place llmruns.Place, name string) *formats.Iteration {
	var prefill, decode *llmruns.Fitted
	for i := range im.set.Fitted {
		f := &im.set.Fitted[i]
		switch {
		case f.Place != place:
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
func (im *llmImport) capacity(at llmruns.Place) (int64, string) {
	if im.opt.KVTokens > 0 {
		return im.opt.KVTokens, formats.KVFromServer
	}
	if kv := im.set.KV[llmruns.Place{Model: at.Model, TensorParallel: at.TensorParallel}]; kv > 0 {
		return kv, formats.KVMeasured
	}
	return 0, ""
}

// stockLoader is the loader that engines use for checkpoints.
const stockLoader = "safetensors"

// loads returns load times: measured ones from disk, else computed from bytes and a rate.
func (im *llmImport) loads(at llmruns.Place) *formats.ModelLoads {
	l := &formats.ModelLoads{}
	var took []time.Duration
	loader := ""
	for _, m := range im.set.Loads { // use one loader: the engines' own, if it was measured
		if !strings.EqualFold(m.Model, at.Model) || m.Device != at.Device || loader == stockLoader && m.Loader != loader {
			continue
		}
		if m.Loader != loader {
			if loader != "" && m.Loader != stockLoader {
				continue
			}
			loader, took = m.Loader, nil
		}
		took = append(took, m.Took)
	}
	bytes := float64(im.set.Weights[at.Model]) / float64(at.TensorParallel)
	var said []string
	if len(took) > 0 {
		slices.Sort(took)
		l.ColdUS = document.Micros(took[len(took)/2])
		said = append(said, fmt.Sprintf("cold: median of %d loads by %s", len(took), loader))
	}
	if swap := im.opt.SwapGBps; swap > 0 && bytes > 0 {
		l.WarmUS = document.Micros(time.Duration(bytes / swap))
		said = append(said, fmt.Sprintf("warm: bytes at %g GB/s, assumed", im.opt.SwapGBps))
	}
	if len(said) == 0 {
		return nil
	}
	l.Source = strings.Join(said, "; ")
	return l
}

// putInstance adds an instance to the profile.
func (im *llmImport) put(at llmruns.Place, in formats.LLMInstance) {
	if !slices.ContainsFunc(im.p.Devices, func(d formats.ProfileDevice) bool { return d.Device == at.Device }) {
		im.p.Devices = append(im.p.Devices, formats.ProfileDevice{Device: at.Device, Engine: "imported", Source: in.Source})
	}
	k := slices.IndexFunc(im.p.LLMs, func(m formats.LLMProfile) bool { return m.Model == at.Model })
	if k < 0 {
		k = len(im.p.LLMs)
		im.p.LLMs = append(im.p.LLMs, formats.LLMProfile{Model: at.Model, WeightBytes: im.set.Weights[at.Model], KVBytesPerToken: im.set.KVBytes[at.Model]})
	}
	im.p.LLMs[k].Instances = append(im.p.LLMs[k].Instances, in)
}
