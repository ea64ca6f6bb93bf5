package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/queue/deploy"
	"inferplan/solver/milp"
)

// adoptServers returns the outcome of servers that run, as if a search had found them, judged by simulation at the rates of the workload.
// Its objective is the goodput, whatever the options say: what runs has a price, but need not keep the SLOs.
func adoptServers(ctx context.Context, in *kind.Problem, run *kind.SolveRun, observed *kind.Observed) (*kind.Outcome, error) {
	if len(observed.Deployment) > 0 {
		return nil, in.FieldError("workload", "llm", "language models with classes of requests", "models that run by themselves (models): what runs are no servers of language models", "")
	}
	if err := in.Values.Set("objective", "goodput"); err != nil {
		return nil, err
	}
	var list []formats.QueueInstance
	for i := range observed.Servers {
		server, err := withinLimits(in, run, &observed.Servers[i])
		if err != nil {
			return nil, err
		}
		list = append(list, *server)
	}
	search, instances, err := deploy.ResolveServers(in, run, list)
	if err != nil {
		return nil, err
	}
	for i := range observed.Servers {
		if err := limitMemory(in, run, search, &observed.Servers[i]); err != nil {
			return nil, err
		}
		warnContext(run, search, &observed.Servers[i])
	}
	limitSequences(run, search, instances)

	// Judge the servers as they stand.
	result, err := search.JudgeAt(ctx, instances, 1, max(search.Problem.Runs, 1), 0)
	if err != nil {
		return nil, err
	}
	s := newPlanner(in, run, "goodput")
	outcome, err := s.serversOutcome(search, instances, result, result.Goodput, math.NaN())
	if err != nil {
		return nil, err
	}
	outcome.StoppedBy, outcome.Objective.Basis = milp.StoppedByWork, formats.BasisSimulation
	return outcome, nil
}

// withinLimits returns the instance of a server with at most as many sequences as the profile's measurements reach to and a plan may state.
// If these are fewer, it warns.
func withinLimits(in *kind.Problem, run *kind.SolveRun, server *kind.Server) (*formats.QueueInstance, error) {
	limited := server.QueueInstance
	limited.Sequences = append([]int{}, server.Sequences...)
	if limited.TensorParallel < 1 || len(limited.Sequences) != len(limited.Models) {
		return nil, fmt.Errorf("%s: found %d devices and sequences for %d of %d models, expected devices, and sequences for each model", server.Label, limited.TensorParallel, len(limited.Sequences), len(limited.Models))
	}
	for k, name := range limited.Models {
		if limited.Sequences[k] > formats.MaxSequences {
			run.Warn("%s: up to %d sequences of %s run at once, and a plan states up to %d: planned with these", server.Label, limited.Sequences[k], name, formats.MaxSequences)
			limited.Sequences[k] = formats.MaxSequences
		}
		_, costs := in.Profile.LLMOn(name, limited.Device, limited.TensorParallel)
		if costs != nil && costs.Sequences > 0 && limited.Sequences[k] > costs.Sequences {
			run.Warn("%s: up to %d sequences of %s run at once, and the profile was measured with up to %d: planned with these", server.Label, limited.Sequences[k], name, costs.Sequences)
			limited.Sequences[k] = costs.Sequences
		}
	}
	return &limited, nil
}

// limitMemory lowers the KV capacity of the models of a server to what its options leave, if that is less than the profile's: a capacity
// that they set, or the memory of its devices less the weights, which is more than the server gets, because it needs some for itself.
// Servers of a model on as many devices of a kind share the lowest capacity, since a plan states one. If the weights or the longest request
// of a model do not fit, it returns an error.
func limitMemory(in *kind.Problem, run *kind.SolveRun, search *deploy.Search, server *kind.Server) error {
	for _, name := range server.Models {
		profile, costs := in.Profile.LLMOn(name, server.Device, server.TensorParallel)
		if costs == nil || !slices.ContainsFunc(search.Problem.Models, func(m deploy.Model) bool { return m.Name == name }) {
			continue
		}
		tokens, perToken, devices := costs.KVTokens, profile.KVBytesPerToken, int64(server.TensorParallel)
		if server.KVTokens > 0 {
			tokens = min(tokens, server.KVTokens)
		}
		if server.KVBytes > 0 && perToken > 0 {
			tokens = min(tokens, server.KVBytes*devices/perToken)
		}
		device := document.First(in.Profile.Devices, func(d *formats.ProfileDevice) bool { return d.Device == server.Device })
		if server.MemoryShare > 0 && perToken > 0 && device != nil && device.MemoryBytes > 0 {
			available := int64(server.MemoryShare*float64(device.MemoryBytes)) * devices
			if available <= profile.WeightBytes {
				return server.Fail(fmt.Sprintf("%.1f GB of memory for %s of %s, a share of %v of %d x %s", 1e-9*float64(available), name, server.Label, server.MemoryShare, devices, server.Device),
					fmt.Sprintf("more than the %.1f GB of its weights", 1e-9*float64(profile.WeightBytes)), "the share is of all memory of a device, with the weights")
			}
			tokens = min(tokens, (available-profile.WeightBytes)/perToken)
		}
		if tokens >= costs.KVTokens {
			continue
		}
		if _, longest := search.Problem.RequestTokens(name); tokens <= longest {
			return server.Fail(fmt.Sprintf("KV memory of at most %d tokens for %s of %s", tokens, name, server.Label), fmt.Sprintf("more than the %d tokens of the longest request with its answer", longest),
				"give the server more context or memory, or limit the lengths in the workload (max): a request that does not fit is never served")
		}
		run.Warn("%s: its options leave memory for at most %d tokens of %s, and the profile has %d: planned with the lower", server.Label, tokens, name, costs.KVTokens)
		search.LimitKV(name, &server.QueueInstance, tokens)
	}
	return nil
}

// limitSequences lowers the sequences of instances to as many of the shortest requests as their KV memory holds. More never run at once.
// If these are fewer, it warns.
func limitSequences(run *kind.SolveRun, search *deploy.Search, instances []formats.QueueInstance) {
	for i := range instances {
		for k, name := range instances[i].Models {
			shortest, _ := search.Problem.RequestTokens(name)
			kvTokens := search.KVTokens(name, &instances[i])
			most := int(min(max(kvTokens/max(shortest, 1), 1), formats.MaxSequences))
			if kvTokens > 0 && instances[i].Sequences[k] > most {
				run.Warn("%s on %d x %s: up to %d sequences may run at once, and the KV memory holds %d of the shortest requests: planned with these", name, instances[i].TensorParallel, instances[i].Device, instances[i].Sequences[k], most)
				instances[i].Sequences[k] = most
			}
		}
	}
}

// warnContext warns of classes whose requests may be longer than a server takes: it refuses these, and the plan counts them as served.
func warnContext(run *kind.SolveRun, search *deploy.Search, server *kind.Server) {
	if server.ContextTokens == 0 {
		return
	}
	for i := range search.Problem.Items {
		item := &search.Problem.Items[i]
		c, name := &search.Problem.Classes[item.Class], search.Problem.Models[item.Model].Name
		longest := c.Prompt.MaxTokens() + c.Output.MaxTokens()
		for _, m := range server.Models {
			if m == name && longest > server.ContextTokens {
				run.Warn("%s: requests of %s have up to %d tokens, and the server takes %d: it refuses longer ones, which the plan counts as served",
					server.Label, strconv.Quote(formats.ModelClass{Model: name, Class: c.Name}.String()), longest, server.ContextTokens)
			}
		}
	}
}

// serversOutcome returns instances as the parts of a plan, with what their runs showed. bound is NaN if it is not known.
func (s *queuePlanner) serversOutcome(search *deploy.Search, instances []formats.QueueInstance, result *deploy.ServersResult, value, bound float64) (*kind.Outcome, error) {
	section, err := search.Plans.ServersSection(instances)
	if err != nil {
		return nil, err
	}
	outcome := s.judgedOutcome(search, section, &result.Score, result.BacklogGrows, value, bound)
	s.assumeRuns(search)
	return outcome, nil
}
