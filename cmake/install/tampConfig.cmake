# Read by find_package(tamp): gives tamp_add_model (TampModel.cmake, beside this file, explains the call) and the program of this
# installation.
#
#   find_package(tamp 0.1 CONFIG REQUIRED)
#   tamp_add_model(resnet50 MODEL resnet50.onnx)
#
# With -DTAMP_CUDA_ON_CPU=ON models are built for the CPU, with the stand-in for CUDA of this installation, which needs Boost.Context.
include("${CMAKE_CURRENT_LIST_DIR}/TampModel.cmake")

# tamp writes C++. A project that has only C until here gets C++ enabled, so that its programs are linked as C++.
get_property(_tamp_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT "CXX" IN_LIST _tamp_languages)
  enable_language(CXX)
endif()

if(TAMP_CUDA_ON_CPU)
  _tamp_find_stand_in(TAMP_CUDA_ON_CPU)  # for folders of `tamp compile` that the project adds itself
  find_package(Boost QUIET COMPONENTS context)  # not find_dependency: its message would not name the package
  if(NOT Boost_FOUND)
    set(tamp_FOUND FALSE)
    set(tamp_NOT_FOUND_MESSAGE "TAMP_CUDA_ON_CPU needs Boost.Context, which is not found. On Debian: apt install libboost-context-dev")
  endif()
endif()
