// Package gateway exports queue plans as pools and objectives of the Gateway API Inference Extension, for model servers
// that already run on Kubernetes.
package gateway
