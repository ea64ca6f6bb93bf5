package llm

import "context"

// Use says how requests name a model, or an adapter of it.
type Use struct {
	Model  string
	Fields map[string]any // additional fields of the request
}

// adapterWeight is the weight of an adapter in a request to llama-server.
type adapterWeight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// RequestUse returns how requests ask for a model without an adapter (wanted is nil), or with one. If adapters
// have weights, each request states them all, so that it does not depend on the server's own weights.
func (a Adapters) RequestUse(ctx context.Context, model string, wanted *Adapter) (Use, error) {
	switch ability := a.server.Abilities.LoRA; {
	case ability == LoRAWeighted:
		weights, err := a.requestWeights(ctx, wanted)
		return Use{model, map[string]any{"lora": weights}}, err
	case wanted == nil:
		return Use{Model: model}, nil
	case ability == LoRABesideModel:
		return Use{model, map[string]any{"lora_path": wanted.Name}}, nil
	}
	return Use{Model: wanted.Name}, nil
}

// requestWeights returns a weight of 1 for the wanted adapter, if not nil, and of 0 for all others.
func (a Adapters) requestWeights(ctx context.Context, wanted *Adapter) ([]adapterWeight, error) {
	list, err := a.weightedAdapters(ctx)
	if err != nil {
		return nil, err
	}
	weights, isListed := make([]adapterWeight, len(list)), wanted == nil
	for i, l := range list {
		weights[i].ID = l.id
		if wanted != nil && LoRAWeighted.matches(l, *wanted) {
			isListed, weights[i].Scale = true, 1
		}
	}
	if !isListed {
		return nil, a.adapterError(*wanted, "found %v", displayNames(list, wanted.Path != ""))
	}
	return weights, nil
}
