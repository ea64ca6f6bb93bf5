// Package blocks reads block latencies and cut sizes from two CSV files into a
// profile: one row per model, device, share, block and batch, and one row per
// model and cut. These are the tables in which published PPipe measurements come.
//
//	latency: model,gpu,vgpu_denominator,block,batch,latency_us
//	cuts:    model,after_block,bytes_fp16_batch1
package blocks
