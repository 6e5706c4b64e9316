// A CUDA device for a torch without CUDA: tensors whose device is "cuda", whose numbers are in main memory, and whose
// operators are those of the CPU. A CPU build leaves torch's places for a CUDA device empty; this fills them, so that
// devices, autograd, autocast and the errors about tensors on two devices are torch's own. Nothing has a GPU's speed.
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>

using at::Tensor;
using c10::Device, c10::DeviceIndex, c10::Stream;

namespace {
const auto gpus = static_cast<DeviceIndex>(std::atoi(std::getenv("REHEARSAL_GPUS")));
const int64_t card_bytes = std::atoll(std::getenv("REHEARSAL_BYTES"));
const int capability = std::atoi(std::getenv("REHEARSAL_CAPABILITY"));  // 75 for 7.5
thread_local DeviceIndex current = 0;
thread_local int64_t stream_of[16] = {};

// ---- Memory, counted as the caching allocator counts it -------------------------------------------------------------
std::mutex lock;
std::map<void*, std::pair<int64_t, DeviceIndex>> blocks;
int64_t held[16] = {}, most[16] = {};

void count(void* block, int64_t bytes, DeviceIndex on) {
    held[on] += bytes;
    most[on] = std::max(most[on], held[on]);
    c10::reportMemoryUsageToProfiler(block, bytes, held[on], held[on], Device(at::kCUDA, on));
}

void release(void* block) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = blocks.find(block);
    if (found == blocks.end()) return;
    count(block, -found->second.first, found->second.second);
    blocks.erase(found);
    std::free(block);
}

void check_not_forked() {  // a child of a process that has used the GPU inherits a context that it can't use
    static const pid_t first = getpid();
    TORCH_CHECK(first == getpid(), "CUDA error: initialization error. Cannot re-initialize CUDA in forked subprocess. "
                "To use CUDA with multiprocessing, you must use the 'spawn' start method");
}

struct Memory final : c10::Allocator {
    c10::DataPtr allocate(size_t wanted) override {
        const Device device(at::kCUDA, current);
        check_not_forked();
        if (!wanted) return {nullptr, nullptr, &release, device};
        const auto bytes = static_cast<int64_t>((wanted + 511) / 512 * 512);  // the caching allocator rounds to 512
        std::lock_guard<std::mutex> guard(lock);
        TORCH_CHECK_WITH(OutOfMemoryError, held[current] + bytes <= card_bytes,
                         "CUDA out of memory. Tried to allocate ", bytes >> 20, ".00 MiB on a simulated GPU.");
        void* block = std::aligned_alloc(512, bytes);
        blocks[block] = {bytes, current};
        count(block, bytes, current);
        return {block, block, &release, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
};
Memory memory;
REGISTER_ALLOCATOR(c10::DeviceType::CUDA, &memory);

// ---- Devices, streams and events: all work is done before a call returns --------------------------------------------
struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return at::kCUDA; }
    Device exchangeDevice(Device to) const override { return Device(at::kCUDA, std::exchange(current, to.index())); }
    Device getDevice() const override { return Device(at::kCUDA, current); }
    void setDevice(Device to) const override { current = to.index(); }
    void uncheckedSetDevice(Device to) const noexcept override { current = to.index(); }
    Stream getStream(Device d) const override {
        return Stream(Stream::UNSAFE, d, stream_of[d.index() < 0 ? current : d.index()]);
    }
    Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, d); }
    Stream exchangeStream(Stream to) const override {
        return Stream(Stream::UNSAFE, to.device(), std::exchange(stream_of[to.device_index()], to.id()));
    }
    void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
        *event = &memory;
    }
    void block(void*, const Stream&) const override {}
    void synchronizeDevice(const DeviceIndex) const override {}
    void destroyEvent(void*, const DeviceIndex) const noexcept override {}
    void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
    DeviceIndex deviceCount() const noexcept override { return gpus; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

struct CUDAHooks final : at::CUDAHooksInterface {
    explicit CUDAHooks(at::CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex current_device() const override { return current; }
    DeviceIndex deviceCount() const override { return gpus; }
    void setCurrentDevice(DeviceIndex to) const override { current = to; }
    DeviceIndex getCurrentDevice() const override { return current; }
    DeviceIndex exchangeDevice(DeviceIndex to) const override { return std::exchange(current, to); }
    DeviceIndex maybeExchangeDevice(DeviceIndex to) const override { return std::exchange(current, to); }
    int getNumGPUs() const override { return gpus; }
    at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(at::kCPU); }
    Device getDeviceFromPtr(void*) const override { return Device(at::kCUDA, current); }
};
}  // namespace
namespace at { using ::CUDAHooks; REGISTER_CUDA_HOOKS(CUDAHooks); }
namespace c10d {
struct NoTimer final : Timer {  // DistributedDataParallel asks for one of its device
    explicit NoTimer(c10::Device) {}
    std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, NoTimer);
}  // namespace c10d
namespace {

struct On {  // within a scope, work on this device
    const DeviceIndex before = current;
    explicit On(std::optional<Device> device) {
        if (!device || device->index() < 0) return;
        TORCH_CHECK(device->index() < gpus, "CUDA error: invalid device ordinal");
        current = device->index();
    }
    ~On() { current = before; }
};

// ---- One memory as a tensor of either device ------------------------------------------------------------------------
Tensor with_layout(Tensor made, const Tensor& like) {
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.is_conj() != made.is_conj()) made._set_conj(like.is_conj());
    if (like.is_neg() != made.is_neg()) made._set_neg(like.is_neg());
    return made;
}

Tensor over(const c10::Storage& storage, const Tensor& like, c10::DispatchKey key) {
    return with_layout(
        at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype()), like);
}

c10::Storage storage_on(const c10::Storage& of, Device device) {
    auto drop = [](void* kept) { delete static_cast<c10::Storage*>(kept); };
    return c10::Storage(c10::Storage::use_byte_size_t(), of.nbytes(),
                        c10::DataPtr(of.mutable_data(), new c10::Storage(of), drop, device),
                        c10::GetAllocator(device.type()), true);
}

Tensor as_cpu(const Tensor& t) {
    return t.is_cuda() ? over(storage_on(t.storage(), Device(at::kCPU)), t, c10::DispatchKey::CPU) : t;
}
Tensor as_cuda(const Tensor& t) {
    return t.is_cuda() ? t : over(storage_on(t.storage(), Device(at::kCUDA, current)), t, c10::DispatchKey::CUDA);
}

void move_storage(const c10::Storage& to, size_t bytes, const void* from, size_t kept) {  // into new memory
    const On on(to.device());
    auto fresh = memory.allocate(bytes);
    if (kept) std::memcpy(fresh.mutable_get(), from, kept);
    to.set_data_ptr_noswap(std::move(fresh));
    to.set_nbytes(bytes);
}

struct Arguments {  // the tensors of a call on the GPU, and the same memory on the CPU
    std::vector<std::pair<Tensor, Tensor>> pairs;
    Device device{at::kCUDA, -1};
    bool host = false;  // a tensor of the CPU is among them; a number may be

    Tensor to_cpu(const Tensor& t) {
        if (!t.defined() || !t.is_cuda()) {
            host |= t.defined() && t.is_cpu() && t.dim();
            return t;
        }
        TORCH_CHECK(device.index() < 0 || device == t.device(), "Expected all tensors to be on the same device, but "
                    "found at least two devices, ", device, " and ", t.device(), "!");
        device = t.device();
        c10::Storage storage;
        for (auto& [gpu, cpu] : pairs) {
            if (gpu.is_same(t)) return cpu;
            if (gpu.is_alias_of(t)) storage = cpu.storage();
        }
        if (!storage) storage = storage_on(t.storage(), Device(at::kCPU));
        pairs.emplace_back(t, over(storage, t, c10::DispatchKey::CPU));
        return pairs.back().second;
    }

    Tensor to_cuda(const Tensor& t) {
        if (!t.defined() || !t.is_cpu()) return t;
        for (auto& [gpu, cpu] : pairs)
            if (cpu.is_same(t)) return gpu;
        for (auto& [gpu, cpu] : pairs)  // a view of an argument has its keys, as one made in inference mode must
            if (cpu.is_alias_of(t))
                return with_layout(at::detail::make_tensor<c10::TensorImpl>(
                    c10::TensorImpl::VIEW, c10::Storage(gpu.storage()), gpu.key_set(), t.dtype()), t);
        auto made = at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
        if (t.numel()) as_cpu(made).copy_(t);
        return made;
    }

    template <class Convert> static void each(c10::IValue& value, Convert convert) {
        if (value.isTensor()) value = convert(value.toTensor());
        else if (value.isTensorList()) {
            c10::List<Tensor> list;
            for (const Tensor& t : value.toTensorVector()) list.push_back(convert(t));
            value = list;
        } else if (value.isOptionalTensorList()) {
            c10::List<std::optional<Tensor>> list;
            for (const auto& t : value.toOptionalTensorVector())
                list.push_back(t ? std::optional<Tensor>(convert(*t)) : std::nullopt);
            value = list;
        } else if (value.isList() && value.toList().size() && value.toList().get(0).isTensorList()) {  // of collectives
            c10::List<c10::List<Tensor>> lists;
            for (const c10::IValue& one : value.toListRef()) {
                auto inner = one;
                each(inner, convert);
                lists.push_back(inner.toTensorList());
            }
            value = lists;
        }
    }

    void take_over() {  // shapes and memory that a kernel of the CPU gave to its results (out=)
        for (auto& [gpu, cpu] : pairs) {
            if (cpu.storage().data() != gpu.storage().data())
                move_storage(gpu.storage(), cpu.storage().nbytes(), cpu.storage().data(), cpu.storage().nbytes());
            if (gpu.sizes() != cpu.sizes() || gpu.strides() != cpu.strides())
                gpu.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
        }
    }
};

// ---- CUDA graphs: a list of what was called, which a replay calls again on the same memory --------------------------
using Graph = std::vector<std::function<void()>>;
std::vector<Graph> graphs;
bool recording = false;
int64_t waits = 0;  // 1: warn where the CPU waits for the GPU (torch.cuda.set_sync_debug_mode)

// Work is done before a call returns; its time counts as queued until the CPU waits for it (see clock in torch_cuda.py).
std::atomic<int64_t> queued_ns = 0;

struct Queued {  // a scope whose time the CPU's clock doesn't see before it waits
    const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    ~Queued() { queued_ns += (std::chrono::steady_clock::now() - began).count(); }
};

void cpu_waits() {
    TORCH_CHECK(!recording, "CUDA error: operation not permitted when stream is capturing");
    queued_ns = 0;
    if (waits) TORCH_WARN("called a synchronizing CUDA operation");
}

void record(std::function<void()> call) {
    if (recording) graphs.back().push_back(std::move(call));
}

// ---- Every operator -------------------------------------------------------------------------------------------------
const std::set<std::string> with_host = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"};
const std::set<std::string> waiting = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"};

// What cuBLASLt asks of a product in float8. Source: torch, aten/src/ATen/native/cuda/ScaledBlas.cpp.
void check_scaled(const Tensor& a, const Tensor& b) {
    TORCH_CHECK(capability >= 89, "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or "
                "8.9, or ROCm MI300+");
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.stride(1) == 1 && b.stride(0) == 1,
                "Only multiplication of row-major and column-major matrices is supported by cuBLASLt");
    TORCH_CHECK(a.size(1) % 16 == 0 && b.size(1) % 16 == 0, "Expected both dimensions of mat2 to be divisible by 16, got ",
                b.sizes());
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const auto& name = schema.name();
    const auto first = stack->size() - schema.arguments().size();
    const torch::jit::Stack given(stack->begin() + first, stack->end());
    if (waiting.count(name)) cpu_waits();
    if (name == "aten::_scaled_mm" || name == "aten::_scaled_mm_v2") check_scaled(given[0].toTensor(), given[1].toTensor());
    Arguments arguments;
    for (auto i = first; i < stack->size(); ++i) {
        auto& value = (*stack)[i];
        Arguments::each(value, [&](const Tensor& t) { return arguments.to_cpu(t); });
        if (value.isDevice() && value.toDevice().is_cuda()) {
            arguments.device = value.toDevice();
            value = Device(at::kCPU);
        }
        TORCH_CHECK(!value.isGenerator() || !value.toGenerator().defined() || !value.toGenerator().device().is_cpu(),
                    "Expected a 'cuda' device type for generator but found 'cpu' (", name, ")");
    }
    if (arguments.device.index() < 0) arguments.device = Device(at::kCUDA, current);
    TORCH_CHECK(!arguments.host || arguments.pairs.empty() || with_host.count(name), "Expected all tensors to be on "
                "the same device, but found at least two devices, ", arguments.device, " and cpu! (", name, ")");
    if ((name == "aten::_softmax" || name == "aten::_log_softmax") && (*stack)[first + 2].toBool()) {
        (*stack)[first] = (*stack)[first].toTensor().to(at::kFloat);  // half to float, which only a GPU's kernel does
        (*stack)[first + 2] = false;
    }
    {
        const Queued queued;
        op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    if (waiting.count(name)) queued_ns = 0;
    arguments.take_over();
    const auto results = stack->size() - schema.returns().size();
    for (auto i = results; i < stack->size(); ++i)
        Arguments::each((*stack)[i], [&](const Tensor& t) { return arguments.to_cuda(t); });
    record([op, given, made = torch::jit::Stack(stack->begin() + results, stack->end())] {
        auto again = given;
        on_cpu(op, &again);
        for (size_t i = 0; i < made.size(); ++i) {
            if (!made[i].isTensor() || !made[i].toTensor().defined()) continue;
            auto to = made[i].toTensor(), from = again[again.size() - made.size() + i].toTensor();
            if (to.storage().data() != from.storage().data()) as_cpu(to).copy_(as_cpu(from));
        }
    });
}

void over_gloo(const c10::OperatorHandle& op, torch::jit::Stack* stack) {  // a collective, on the memory of its tensors
    Arguments arguments;
    const auto count = op.schema().arguments().size();
    for (auto i = stack->size() - count; i < stack->size(); ++i)
        Arguments::each((*stack)[i], [&](const Tensor& t) { return arguments.to_cpu(t); });
    const bool on_gpu = !arguments.pairs.empty();  // each device's backend is asked, and NCCL has none for a CPU
    auto next = on_gpu ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    if (!on_gpu && c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python))
        next = c10::DispatchKey::Python;  // a mode that counts collectives sees it first; on a GPU it sees none
    op.redispatchBoxed(c10::DispatchKeySet(next), stack);
    for (auto i = stack->size() - op.schema().returns().size(); on_gpu && i < stack->size(); ++i)
        Arguments::each((*stack)[i], [&](const Tensor& t) { return arguments.to_cuda(t); });
}

// ---- What makes, copies and resizes tensors -------------------------------------------------------------------------
const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
using Dtype = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;

Tensor empty(at::IntArrayRef size, Dtype dtype, Layout, std::optional<Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
    const On on(device);
    return at::detail::empty_generic(size, &memory, keys, c10::dtype_or_default(dtype), format);
}
Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, Dtype dtype, Layout, std::optional<Device> device,
                     std::optional<bool>) {
    const On on(device);
    return at::detail::empty_strided_generic(size, stride, &memory, keys, c10::dtype_or_default(dtype));
}
Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) {
    const bool is_wait = self.is_cuda() != from.is_cuda() && !non_blocking;
    if (is_wait) cpu_waits();
    if (self.numel()) {
        const Queued queued;
        as_cpu(self).copy_(as_cpu(from));
    }
    if (is_wait) queued_ns = 0;
    record([self, from] { as_cpu(self).copy_(as_cpu(from)); });
    return self;
}
Tensor& set_all(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
    auto* tensor = self.unsafeGetTensorImpl();
    tensor->set_storage_keep_dtype(source);
    if (stride.size() == size.size()) tensor->set_sizes_and_strides(size, stride, offset);
    else tensor->set_sizes_contiguous(size), tensor->set_storage_offset(offset);
    return self;
}
Tensor& set_storage(Tensor& self, at::Storage source) {
    return set_all(self, source, 0, {static_cast<int64_t>(source.nbytes() / self.itemsize())}, {1});
}
Tensor& set_tensor(Tensor& self, const Tensor& from) {
    return set_all(self, from.storage(), from.storage_offset(), from.sizes(), from.strides());
}
int64_t choose_math(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                    std::optional<double>, bool) { return 0; }
void resize_storage(const Tensor& t, int64_t bytes) {  // FSDP drops what was gathered so
    const auto& storage = t.storage();
    move_storage(storage, bytes, storage.data(), std::min(static_cast<size_t>(bytes), storage.nbytes()));
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("copy_", copy_);
    m.impl("set_.source_Storage", set_storage);
    m.impl("set_.source_Storage_storage_offset", set_all);
    m.impl("set_.source_Tensor", set_tensor);
    m.impl("_fused_sdp_choice", choose_math);
    for (auto name : {"convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_cpu>());  // these would ask for cuDNN
}
TORCH_LIBRARY_IMPL(c10d, ADInplaceOrView, m) {  // the last key before the device's own
    for (auto name : {"allreduce_", "broadcast_", "allgather_", "_allgather_base_", "reduce_", "reduce_scatter_",
                      "_reduce_scatter_base_", "gather_", "scatter_", "alltoall_", "alltoall_base_", "send", "recv_",
                      "allreduce_coalesced_", "allgather_coalesced_", "allgather_into_tensor_coalesced_",
                      "reduce_scatter_tensor_coalesced_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&over_gloo>());
}
TORCH_LIBRARY(rehearsal, m) {
    m.def("as_cuda(Tensor t) -> Tensor");
    m.def("as_cpu(Tensor t) -> Tensor");
    m.def("resize_storage(Tensor t, int bytes) -> ()");
    m.impl("resize_storage", c10::DispatchKey::CUDA, resize_storage);
    for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
        m.impl("as_cuda", key, as_cuda);
        m.impl("as_cpu", key, as_cpu);
    }
}
}  // namespace

// ---- For torch_cuda.py ----------------------------------------------------------------------------------------------
extern "C" {
int64_t held_bytes(int device) { return held[device]; }
int64_t peak_bytes(int device) { return most[device]; }
void reset_peak(int device) { most[device] = held[device]; }
int exchange_device(int to) { return to < 0 ? current : std::exchange(current, static_cast<DeviceIndex>(to)); }
int64_t exchange_stream(int device, int64_t to) {
    return to < 0 ? stream_of[device] : std::exchange(stream_of[device], to);
}
void set_waits(int64_t mode) { waits = mode; }
int64_t queued() { return queued_ns; }
void queue(int64_t ns) { queued_ns += ns; }
void wait_for_all() { queued_ns = 0; }
int64_t begin_graph() { recording = true; graphs.emplace_back(); return graphs.size() - 1; }
void end_graph() { recording = false; }
void replay_graph(int64_t number) { at::NoGradGuard no_grad; for (auto& call : graphs[number]) call(); }
int is_recording() { return recording; }
}
