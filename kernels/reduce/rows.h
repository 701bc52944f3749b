// Host side of rows.cuh: kept and reduced dimensions as two nests, and how threads are laid over them.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"
#include "compiler/ir/shaped_vdevice.h"
#include "kernels/loop.h"

namespace tamp::kernels {

// Operand 0 of both loops is the input, operand 1 the output. Counts are of vectors where `vector` is 4.
struct Rows {
  Loop kept, reduced;
  int64_t vector = 1;
  int64_t lanes = 1;  // rows side by side; a power of two, at most compute_threads
  bool lanes_first = false;

  int64_t rows() const { return loop_elements(kept) / vector; }
  int64_t reduced_elements() const { return loop_elements(reduced); }
};

// Lays threads over the nests: neighbouring threads on neighbouring memory, a few elements per thread.
void lay_threads(Rows& rows, const ShapedVDevice& vdevice);

// That layout and, where neighbouring threads have neighbouring rows and these are too few for the vEUs, further ones with fewer rows side
// by side, so that there are more rTasks, which have fewer elements each; two for each thread, at least. Eight rows of f32 are whole
// sectors still. Example: 196 rows on 132 vEUs. With 32 rows side by side 7 rTasks have work, with 8 rows 25, with 2 rows 98.
std::vector<Rows> layouts_of(Rows rows, const ShapedVDevice& vdevice);

// So many times as many bytes come from L2, or go there, as operand `operand` has values of `value_bytes` in a rTask's rows: memory
// delivers whole sectors of 32 bytes, and few rows side by side want a part of each only.
double sector_factor(const Rows& rows, size_t operand, int64_t value_bytes);

// Rows per rTask for about `rtasks` rTasks: a multiple of the lanes.
int64_t rows_per_rtask(const Rows& rows, int64_t rtasks);

// rk::RowsArgs between two places.
ArgValue rows_arg(const Rows& rows, const ArgValue& in, const ArgValue& out, int64_t rows_per_rtask);

// For bodies that read a row more than once and write a row of the same length: how many elements a thread keeps in shared memory between
// the reads, in whole batches of four; 0 if the row is too long for that.
int64_t kept_per_thread(const Rows& rows, const ShapedVDevice& vdevice);
// A rKernel with one phase of a family that works on rows; the rows per rTask are in its config.
RKernel rows_rkernel(const std::string& family, const Rows& rows, int64_t per_rtask, Phase phase);
// What a rTask of such a rKernel reads of the first input, and all that it writes.
void append_rows(const Rows& rows, const Graph& graph, const ROperator& rop, const RKernel& rkernel, int64_t index, Accesses& out);

// Rows [begin, end) of the input, in elements of the kept nest, with all that is reduced into them.
void append_row_reads(const Rows& rows, const Graph& graph, TensorId in, int64_t begin, int64_t end, std::vector<Region>& regions);

}  // namespace tamp::kernels
